//! A ring after fork(2): its memory is the parent's and the child's, the rest of it is copied.
//!
//! Whoever uses such a ring takes its heads and tails from the shared memory, under the lock of its
//! [`BiasedLock`](uringlet_sys::biased_lock::BiasedLock). Requests, registered files and buffers are each process' own: a child
//! can reap what its parent submitted, but not cancel it.

use super::ring::RingState;
use crate::ring_resources::LockOwner;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Acquire, Release};
use uringlet_sys::biased_lock::Held;
use uringlet_sys::process;

/// This process uses a ring that another one made.
static IS_HEIR: AtomicBool = AtomicBool::new(false);

/// Whether this process uses a ring that another one made.
pub(crate) fn is_heir() -> bool {
    IS_HEIR.load(Acquire)
}

/// In a forked child, which has used none yet.
pub(crate) fn forget_heritage() {
    IS_HEIR.store(false, Release);
}

impl RingState {
    /// Enters among the processes that share the ring: only its maker, most of the time.
    #[inline]
    pub(super) fn go_in(&mut self, lock_owner: LockOwner) {
        self.res.lock_owner = lock_owner;
        if self.maker == process::pid() {
            self.inside = self.res.memory.biased_lock().acquire();
            if self.inside == Held::Shared {
                self.res.cq.resync_tail(&self.res.memory);
            }
        } else {
            self.go_in_as_heir();
        }
    }

    /// In a forked child: the ring is left alone until a thread of the program uses it.
    #[cold]
    fn go_in_as_heir(&mut self) {
        if !self.has_claimed && self.res.lock_owner == LockOwner::Worker {
            return;
        }
        if !self.has_claimed {
            self.res.memory.biased_lock().revoke_bias();
            self.has_claimed = true;
            IS_HEIR.store(true, Release);
        }
        self.res.memory.biased_lock().acquire_shared();
        self.inside = Held::Shared;
        self.res.cq.resync_tail(&self.res.memory);
    }

    #[inline]
    pub(super) fn go_out(&mut self) {
        let inside = core::mem::replace(&mut self.inside, Held::No);
        self.res.memory.biased_lock().release(inside);
    }

    /// A forked child's copy of a ring that it does not use: its end is of no consequence to others.
    pub(crate) fn is_idle_heir(&self) -> bool {
        self.maker != process::pid() && self.in_flight == 0
    }

    /// Whether another process posts and submits here, too.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.inside == Held::Shared
    }
}
