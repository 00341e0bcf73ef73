//! Sessions: who may use the store.
//!
//! A request goes through the gate with its session's number and holds a turn (a read lock) until it has ended, wherever it is
//! executed. A session begins under the write lock: no request of an earlier one is at work then, and those that come later
//! find another number. So a request that was sent again in a new session cannot be undone by its first copy.
//!
//! Numbers are `incarnation << 32 | count`: a number of another incarnation was given by another process.

use crate::frames::Held;
use crate::{status, volume};
use bytes::Bytes;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{OwnedRwLockReadGuard, RwLock};
use tonic::Status;
use uringlet_sys::Errno;

/// See the module.
#[derive(Debug)]
pub(crate) struct Gate {
    /// The session that there is. Its lock is the gate.
    current: Arc<RwLock<u64>>,
    holder: Mutex<Option<Holder>>,
}

/// Who has the store, or had it last.
#[derive(Debug)]
struct Holder {
    session: u64,
    owner: Bytes,
    /// Its stream is open.
    is_live: bool,
}

/// Who may be in the way of a new session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Nobody who has the store.
    Free,
    /// Nobody else since the last session.
    Resume,
    /// Anybody.
    Takeover,
}

/// As long as one lives, no session begins.
pub(crate) type Turn = OwnedRwLockReadGuard<u64>;

/// A session's stream.
#[derive(Debug)]
pub(crate) struct Lease {
    gate: Arc<Gate>,
    session: u64,
}

impl Held for Lease {}

impl Lease {
    pub(crate) fn session(&self) -> u64 {
        self.session
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut holder = self.gate.holder();
        if let Some(holder) = holder.as_mut().filter(|holder| holder.session == self.session) {
            holder.is_live = false;
        }
    }
}

impl Gate {
    pub(crate) fn new() -> Self {
        let incarnation = volume::random() << 32;
        Self { current: Arc::new(RwLock::new(incarnation)), holder: Mutex::new(None) }
    }

    fn holder(&self) -> MutexGuard<'_, Option<Holder>> {
        self.holder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self, owner: &Bytes, claim: Claim) -> Result<(), Status> {
        let holder = self.holder();
        let Some(other) = holder.as_ref().filter(|holder| holder.owner != *owner) else { return Ok(()) };
        match claim {
            Claim::Free if other.is_live => Err(status::of(Errno::EBUSY, "another client uses this store")),
            Claim::Resume => Err(Status::failed_precondition("another client has used this store")),
            Claim::Free | Claim::Takeover => Ok(()),
        }
    }

    /// Begins a session when all requests of earlier ones have ended.
    pub(crate) async fn open(self: &Arc<Self>, owner: Bytes, claim: Claim) -> Result<Lease, Status> {
        // Nobody's requests wait for one who is refused.
        self.check(&owner, claim)?;
        let mut current = self.current.write().await;
        self.check(&owner, claim)?;
        *current += 1;
        *self.holder() = Some(Holder { session: *current, owner, is_live: true });
        Ok(Lease { gate: Arc::clone(self), session: *current })
    }

    /// Lets a request in.
    pub(crate) async fn enter(&self, session: u64) -> Result<Turn, Status> {
        let turn = Arc::clone(&self.current).read_owned().await;
        if *turn == session {
            Ok(turn)
        } else if *turn >> 32 == session >> 32 {
            Err(Status::failed_precondition("another session has begun"))
        } else {
            Err(Status::aborted("this store knows no such session"))
        }
    }

    /// Waits for the requests at work; none gets in any more.
    pub(crate) async fn close(&self) {
        let mut current = self.current.write().await;
        *current = !*current;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{Meaning, meaning};

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
    }

    #[test]
    fn one_client_at_a_time() {
        run(async {
            let gate = Arc::new(Gate::new());
            let (one, two) = (Bytes::from_static(b"one"), Bytes::from_static(b"two"));
            let first = gate.open(one.clone(), Claim::Free).await.unwrap();
            let refusal = gate.open(two.clone(), Claim::Free).await.unwrap_err();
            assert_eq!(meaning(&refusal), Meaning::Failed(Errno::EBUSY));
            drop(gate.enter(first.session()).await.unwrap());
            let again = gate.open(one.clone(), Claim::Resume).await.unwrap();
            let late = gate.enter(first.session()).await.unwrap_err();
            assert_eq!(meaning(&late), Meaning::TakenAway);
            // The end of a session that is over ends nothing.
            drop(first);
            assert!(gate.open(two.clone(), Claim::Free).await.is_err());
            drop(again);
            let second = gate.open(two, Claim::Free).await.unwrap();
            assert_eq!(meaning(&gate.open(one, Claim::Resume).await.unwrap_err()), Meaning::TakenAway);
            let third = gate.open(Bytes::new(), Claim::Takeover).await.unwrap();
            assert!(gate.enter(second.session()).await.is_err());
            drop(gate.enter(third.session()).await.unwrap());
            let other = Gate::new().enter(third.session()).await.unwrap_err();
            assert_eq!(meaning(&other), Meaning::Unknown);
            gate.close().await;
            assert!(gate.enter(third.session()).await.is_err());
        });
    }

    #[test]
    fn a_session_waits_for_requests_of_the_one_before() {
        run(async {
            let gate = Arc::new(Gate::new());
            let first = gate.open(Bytes::new(), Claim::Free).await.unwrap();
            let turn = gate.enter(first.session()).await.unwrap();
            let opening = tokio::spawn({
                let gate = Arc::clone(&gate);
                async move { gate.open(Bytes::new(), Claim::Takeover).await.unwrap() }
            });
            while gate.current.try_read().is_ok() {
                tokio::task::yield_now().await;
            }
            assert!(!opening.is_finished());
            drop(turn);
            let second = opening.await.unwrap();
            assert!(second.session() > first.session());
        });
    }
}
