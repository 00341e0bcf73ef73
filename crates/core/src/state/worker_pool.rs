//! io-wq as rings share it: a pool for each identity (`crate::identity`).
//!
//! A pool is made when the first request of its identity comes. When the identity has ended, the
//! pool is shut down: its workers end when they have run what was queued for them, and no request
//! has captured the identity. What waits there without a worker goes to the pool of the identity
//! that its submitter has now.

use super::punted::Punted;
use crate::identity::{self, Identity};
use crate::io_wq::{Account, Cancelled, CpuMask, HashKey, IoWq, MayStart, default_limits};
use crate::request::CapturedIdentity;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use uringlet_sys::lock::Mutex;
use uringlet_sys::process;

/// A ring's share in the workers, which end with the last share.
#[derive(Clone, Debug)]
pub(crate) struct WorkerPool(Arc<PoolShare>);

#[derive(Debug)]
struct PoolShare {
    next_work: AtomicU64,
    pools: Mutex<Pools>,
}

#[derive(Debug)]
struct Pools {
    by_identity: Vec<IdentityPool>,
    max_workers: [u32; 2],
    affinity: Option<CpuMask>,
}

#[derive(Debug)]
struct IdentityPool {
    identity: Identity,
    /// It is shut down.
    has_ended: bool,
    io_wq: Arc<IoWq<Punted>>,
}

impl WorkerPool {
    /// The workers of a ring of `sq_entries`.
    pub(crate) fn new(sq_entries: u32) -> Self {
        Self::with_limits(default_limits(sq_entries))
    }

    /// With these limits of bounded and unbounded workers, for each identity.
    pub(crate) fn with_limits(max_workers: [u32; 2]) -> Self {
        let pools = Pools { by_identity: Vec::new(), max_workers, affinity: None };
        Self(Arc::new(PoolShare { next_work: AtomicU64::new(1), pools: Mutex::new(pools) }))
    }

    /// In a forked child: the threads are the parent's, the locks may be held by them.
    pub(crate) fn forget(&self) {
        core::mem::forget(self.clone());
    }

    /// A number for a piece of work, to cancel it by.
    pub(crate) fn number(&self) -> u64 {
        self.0.next_work.fetch_add(1, Relaxed)
    }

    /// The pool of an identity.
    fn of(&self, identity: Identity) -> Arc<IoWq<Punted>> {
        self.0.pools.lock().of(identity)
    }

    /// Hands a request to a worker of its identity, which is the calling thread's.
    ///
    /// # Errors
    /// See [`IoWq::enqueue`].
    pub(crate) fn enqueue(&self, key: Option<HashKey>, punted: Punted) -> Result<(), Vec<Punted>> {
        self.of(punted.identity).enqueue(punted.account, key, punted.work, punted)
    }

    /// Hands a request to a worker of its identity, which is not the calling thread's. `false`: see
    /// [`IoWq::enqueue_only`].
    pub(crate) fn enqueue_only(&self, key: Option<HashKey>, punted: Punted) -> bool {
        self.of(punted.identity).enqueue_only(punted.account, key, punted.work, punted)
    }

    /// Starts the workers that requests of this identity wait for. The identity is the calling
    /// thread's.
    ///
    /// # Errors
    /// See [`IoWq::enqueue`].
    pub(crate) fn start_missing(&self, identity: Identity) -> Result<(), Vec<Punted>> {
        self.end_old();
        self.of(identity).start_missing()
    }

    /// Whether requests wait for workers that are still to be started.
    pub(crate) fn lacks_worker(&self) -> bool {
        self.0.pools.lock().by_identity.iter().any(|pool| pool.io_wq.lacks_worker())
    }

    /// Leaves a bounded worker behind for requests of this identity, which is the calling thread's
    /// and no other's.
    pub(crate) fn keep_worker(&self, identity: Identity) {
        let io_wq = self.of(identity);
        io_wq.stay_for(identity::thread_of(identity));
        io_wq.keep_worker(Account::Bound);
    }

    /// A request will act with this identity, also if its submitter has another one by then.
    pub(crate) fn capture(&self, identity: Identity) -> CapturedIdentity {
        CapturedIdentity { identity, _hold: self.of(identity).hold() }
    }

    /// The calling thread is about to give up this identity: starts a bounded worker if one is
    /// needed for what has captured it.
    pub(crate) fn keep_captured(&self, identity: Identity) {
        let io_wq = self.0.pools.lock().find(identity);
        if let Some(io_wq) = io_wq.filter(|io_wq| io_wq.is_held()) {
            io_wq.keep_worker(Account::Bound);
        }
    }

    /// Leaves a bounded worker behind for what has captured this identity, which is the calling
    /// thread's. Returns whether there is one.
    pub(crate) fn keep_worker_of_captured(&self, identity: Identity) -> bool {
        let io_wq = self.of(identity);
        io_wq.keep_worker(Account::Bound);
        io_wq.has_worker(Account::Bound)
    }

    /// Ends the workers of identities that have ended. [`lacks_worker`](Self::lacks_worker) must be
    /// asked then.
    pub(crate) fn end_old(&self) {
        let abandoned = self.0.pools.lock().end_old();
        for punted in abandoned {
            let identity = identity::of_thread(punted.submitter);
            self.enqueue_only(None, Punted { identity, ..punted });
        }
    }

    /// See [`IoWq::has_capacity`].
    pub(crate) fn has_capacity(&self, identity: Identity, account: Account) -> bool {
        self.of(identity).has_capacity(account)
    }

    /// See [`IoWq::cancel`]. The calling thread has the identity `own`, if that is known.
    pub(crate) fn cancel(&self, own: Option<Identity>, work: u64) -> Cancelled<Punted> {
        self.find(|pool| match pool.io_wq.cancel(work, pool.may_start(own)) {
            Cancelled::Unknown => None,
            cancelled => Some(cancelled),
        })
        .unwrap_or(Cancelled::Unknown)
    }

    /// See [`IoWq::withdraw`].
    pub(crate) fn withdraw(&self, work: u64) -> Option<Punted> {
        self.find(|pool| pool.io_wq.withdraw(work))
    }

    fn find<T>(&self, ask: impl Fn(&IdentityPool) -> Option<T>) -> Option<T> {
        self.0.pools.lock().by_identity.iter().find_map(ask)
    }

    /// `IORING_REGISTER_IOWQ_MAX_WORKERS`: sets limits, up to `RLIMIT_NPROC` (0 leaves one
    /// unchanged), and returns the old ones. The calling thread has the identity `own`, if that is
    /// known.
    pub(crate) fn set_max_workers(&self, own: Option<Identity>, new: [u32; 2]) -> [u32; 2] {
        let most = process::rlimit_nproc().min(u64::from(u32::MAX)) as u32;
        let mut pools = self.0.pools.lock();
        let old = pools.max_workers;
        for (limit, new) in pools.max_workers.iter_mut().zip(new) {
            *limit = if new > 0 { new.min(most) } else { *limit };
        }
        for pool in pools.by_identity.iter().filter(|pool| !pool.has_ended) {
            pool.io_wq.set_max_workers(new, pool.may_start(own));
        }
        old
    }

    /// CPUs that workers may use; `None` for any.
    pub(crate) fn set_affinity(&self, mask: Option<CpuMask>) {
        let mut pools = self.0.pools.lock();
        pools.affinity = mask;
        pools.by_identity.iter().for_each(|pool| pool.io_wq.set_affinity(mask));
    }
}

impl IdentityPool {
    /// Whether a thread of this identity may start workers.
    fn may_start(&self, own: Option<Identity>) -> MayStart {
        if own == Some(self.identity) { MayStart::Yes } else { MayStart::No }
    }
}

impl Pools {
    fn find(&self, identity: Identity) -> Option<Arc<IoWq<Punted>>> {
        self.by_identity.iter().find(|pool| pool.identity == identity).map(|pool| Arc::clone(&pool.io_wq))
    }

    fn of(&mut self, identity: Identity) -> Arc<IoWq<Punted>> {
        if let Some(known) = self.find(identity) {
            return known;
        }
        let io_wq = IoWq::with_limits(self.max_workers);
        io_wq.set_affinity(self.affinity);
        self.by_identity.push(IdentityPool { identity, has_ended: false, io_wq: Arc::clone(&io_wq) });
        io_wq
    }

    /// Shuts down the pools of identities that have ended. Returns the work that waits there for
    /// workers.
    fn end_old(&mut self) -> Vec<Punted> {
        let mut abandoned = Vec::new();
        for pool in &mut self.by_identity {
            if !identity::has_ended(pool.identity) {
                continue;
            }
            pool.io_wq.stay_for(0);
            if !pool.has_ended && !pool.io_wq.is_held() {
                pool.has_ended = true;
                pool.io_wq.shut_down();
            }
            abandoned.extend(pool.io_wq.take_abandoned());
        }
        self.by_identity.retain(|pool| !pool.has_ended || !pool.io_wq.is_over());
        abandoned
    }
}

impl Drop for PoolShare {
    fn drop(&mut self) {
        for pool in &self.pools.lock().by_identity {
            pool.io_wq.shut_down();
        }
    }
}
