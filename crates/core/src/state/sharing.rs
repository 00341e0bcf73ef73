//! A ring after fork(2): parent and child share its memory; the rest of it is copied.
//!
//! A user of such a ring takes heads and tails from the shared memory, under the ring's
//! [`BiasedLock`](uringlet_sys::biased_lock::BiasedLock). Each process has its own requests,
//! registered files and buffers. A child asks the ring's maker to cancel what the maker submitted
//! (`submit::remote_cancel`).

use super::ring::RingState;
use crate::ring_resources::LockOwner;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Acquire, Release};
use uringlet_sys::biased_lock::Held;
use uringlet_sys::process;

/// This process uses a ring of its parent.
static IS_FORKED_CHILD: AtomicBool = AtomicBool::new(false);

/// Whether this process uses a ring of its parent.
pub(crate) fn is_forked_child() -> bool {
    IS_FORKED_CHILD.load(Acquire)
}

/// In a forked child, which has not used a ring of its parent yet.
pub(crate) fn reset_forked_child() {
    IS_FORKED_CHILD.store(false, Release);
}

impl RingState {
    /// Acquires the lock between processes. Mostly the maker is the only one to use the ring.
    #[inline(always)]
    pub(super) fn acquire(&mut self, lock_owner: LockOwner) {
        self.res.lock_owner = lock_owner;
        if self.maker == process::pid() {
            self.held = self.res.memory.biased_lock().acquire(self.maker);
            if self.held == Held::Shared {
                self.res.cq.resync_tail(&self.res.memory);
            }
        } else {
            self.acquire_as_forked_child();
        }
    }

    /// In a forked child: the engine does not touch the ring until a thread of the program uses it.
    #[cold]
    fn acquire_as_forked_child(&mut self) {
        if !self.has_revoked_bias && !self.res.lock_owner.is_submitter() {
            return;
        }
        if !self.has_revoked_bias {
            self.res.memory.biased_lock().revoke_bias();
            self.has_revoked_bias = true;
            IS_FORKED_CHILD.store(true, Release);
            // A driver of the maker's sleeps in its epoll set, where this process cannot post.
            self.wake_maker();
        }
        self.res.memory.biased_lock().acquire_shared();
        self.held = Held::Shared;
        self.res.cq.resync_tail(&self.res.memory);
    }

    #[inline(always)]
    pub(super) fn release_shared(&mut self) {
        let held = core::mem::replace(&mut self.held, Held::No);
        if held == Held::Shared {
            self.before_release_shared();
        }
        self.res.memory.biased_lock().release(held);
    }

    #[cold]
    fn before_release_shared(&self) {
        if self.maker == process::pid() {
            self.say_whether_served();
        }
    }

    /// The maker says whether it would notice a question of another process.
    #[cold]
    pub(crate) fn say_whether_served(&self) {
        self.res.memory.remote_cancel().set_served(self.needs_watch() || self.waiters.sleeping > 0);
    }

    /// In a forked child: the maker's thread that looks after the ring takes its lock soon.
    pub(crate) fn wake_maker(&self) {
        if let Some(wake) = &self.res.maker_wake {
            wake.signal();
        }
    }

    /// The ring's maker, to a forked child that uses the ring.
    pub(crate) fn other_maker(&self) -> Option<u32> {
        (self.is_shared() && self.maker != process::pid()).then_some(self.maker)
    }

    /// Whether this is a forked child's copy of a ring that the child does not use: its end affects
    /// no other process.
    pub(crate) fn is_unused_by_child(&self) -> bool {
        self.maker != process::pid() && self.in_flight == 0
    }

    /// Whether another process posts and submits on this ring, too.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.held == Held::Shared
    }
}
