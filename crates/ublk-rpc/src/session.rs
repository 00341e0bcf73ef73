//! Sessions: which client may use the store.
//!
//! A request carries its session's number, and holds a guard (a read lock) while it executes. A
//! session begins under the write lock: no request of an earlier session is executing then, and
//! later ones find another number. A request that was repeated in a new session can therefore not
//! be undone by its first copy.
//!
//! Numbers are `incarnation << 32 | count`. A number of another incarnation is another process's.

use crate::codec::StreamState;
use crate::status;
use bytes::Bytes;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{OwnedRwLockReadGuard, RwLock};
use tonic::Status;
use uringlet_sys::Errno;
use uringlet_ublk_server::volume::random_id;

/// See the module.
#[derive(Debug)]
pub(crate) struct SessionLock {
    /// The number of the current session; its lock is described above.
    current: Arc<RwLock<u64>>,
    holder: Mutex<Option<SessionHolder>>,
}

/// The client that has the store, or had it last.
#[derive(Debug)]
struct SessionHolder {
    session: u64,
    owner: Bytes,
    /// Its stream is open.
    is_live: bool,
}

/// Which clients do not prevent a new session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimMode {
    /// Clients without an open session.
    Free,
    /// None: no other client since the last session.
    Resume,
    /// All.
    Takeover,
}

/// While one exists, no session begins.
pub(crate) type SessionGuard = OwnedRwLockReadGuard<u64>;

/// Held by a session's stream.
#[derive(Debug)]
pub(crate) struct SessionLease {
    sessions: Arc<SessionLock>,
    session: u64,
}

impl StreamState for SessionLease {}

impl SessionLease {
    pub(crate) fn session(&self) -> u64 {
        self.session
    }
}

impl Drop for SessionLease {
    fn drop(&mut self) {
        let mut holder = self.sessions.holder();
        if let Some(holder) = holder.as_mut().filter(|holder| holder.session == self.session) {
            holder.is_live = false;
        }
    }
}

impl SessionLock {
    pub(crate) fn new() -> Self {
        let incarnation = random_id() << 32;
        Self { current: Arc::new(RwLock::new(incarnation)), holder: Mutex::new(None) }
    }

    fn holder(&self) -> MutexGuard<'_, Option<SessionHolder>> {
        self.holder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self, owner: &Bytes, mode: ClaimMode) -> Result<(), Status> {
        let holder = self.holder();
        let Some(other) = holder.as_ref().filter(|holder| holder.owner != *owner) else { return Ok(()) };
        match mode {
            ClaimMode::Free if other.is_live => Err(status::of(Errno::EBUSY, "another client uses this store")),
            ClaimMode::Resume => Err(Status::failed_precondition("another client has used this store")),
            ClaimMode::Free | ClaimMode::Takeover => Ok(()),
        }
    }

    /// Begins a session once all requests of earlier ones have ended.
    pub(crate) async fn open(self: &Arc<Self>, owner: Bytes, mode: ClaimMode) -> Result<SessionLease, Status> {
        // Without the lock first, so that a refused client delays no requests.
        self.check(&owner, mode)?;
        let mut current = self.current.write().await;
        self.check(&owner, mode)?;
        *current += 1;
        *self.holder() = Some(SessionHolder { session: *current, owner, is_live: true });
        Ok(SessionLease { sessions: Arc::clone(self), session: *current })
    }

    /// Admits a request.
    pub(crate) async fn enter(&self, session: u64) -> Result<SessionGuard, Status> {
        let guard = Arc::clone(&self.current).read_owned().await;
        if *guard == session {
            Ok(guard)
        } else if *guard >> 32 == session >> 32 {
            Err(Status::failed_precondition("another session has begun"))
        } else {
            Err(Status::aborted("this store knows no such session"))
        }
    }

    /// Waits for executing requests and admits no more.
    pub(crate) async fn close(&self) {
        let mut current = self.current.write().await;
        *current = !*current;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{ErrorClass, classify};

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
    }

    #[test]
    fn only_one_client_has_a_session() {
        run(async {
            let sessions = Arc::new(SessionLock::new());
            let (one, two) = (Bytes::from_static(b"one"), Bytes::from_static(b"two"));
            let first = sessions.open(one.clone(), ClaimMode::Free).await.unwrap();
            let refusal = sessions.open(two.clone(), ClaimMode::Free).await.unwrap_err();
            assert_eq!(classify(&refusal), ErrorClass::Permanent(Errno::EBUSY));
            drop(sessions.enter(first.session()).await.unwrap());
            let again = sessions.open(one.clone(), ClaimMode::Resume).await.unwrap();
            let late = sessions.enter(first.session()).await.unwrap_err();
            assert_eq!(classify(&late), ErrorClass::TakenOver);
            // Dropping an earlier session's lease does not end the current one.
            drop(first);
            assert!(sessions.open(two.clone(), ClaimMode::Free).await.is_err());
            drop(again);
            let second = sessions.open(two, ClaimMode::Free).await.unwrap();
            assert_eq!(classify(&sessions.open(one, ClaimMode::Resume).await.unwrap_err()), ErrorClass::TakenOver);
            let third = sessions.open(Bytes::new(), ClaimMode::Takeover).await.unwrap();
            assert!(sessions.enter(second.session()).await.is_err());
            drop(sessions.enter(third.session()).await.unwrap());
            let other = SessionLock::new().enter(third.session()).await.unwrap_err();
            assert_eq!(classify(&other), ErrorClass::UnknownSession);
            sessions.close().await;
            assert!(sessions.enter(third.session()).await.is_err());
        });
    }

    #[test]
    fn a_new_session_waits_for_requests_of_the_previous_one() {
        run(async {
            let sessions = Arc::new(SessionLock::new());
            let first = sessions.open(Bytes::new(), ClaimMode::Free).await.unwrap();
            let guard = sessions.enter(first.session()).await.unwrap();
            let opening = tokio::spawn({
                let sessions = Arc::clone(&sessions);
                async move { sessions.open(Bytes::new(), ClaimMode::Takeover).await.unwrap() }
            });
            while sessions.current.try_read().is_ok() {
                tokio::task::yield_now().await;
            }
            assert!(!opening.is_finished());
            drop(guard);
            let second = opening.await.unwrap();
            assert!(second.session() > first.session());
        });
    }
}
