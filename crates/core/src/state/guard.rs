//! The guard of a ring's lock.

use super::ring::{Busy, Ring, RingState};
use super::wakeups::DeferredWakeups;
use crate::ring_resources::LockOwner;
use core::ops::{Deref, DerefMut};
use uringlet_sys::lock::{MutexGuard, UnlockedMutex};

/// The right to use a ring's state. Its drop publishes what was posted and sends the wake-ups.
#[derive(Debug)]
pub(crate) struct UringGuard {
    pub(crate) ring: &'static Ring,
    // Fields drop in this order: the lock is released, then the wake-ups go out.
    inner: MutexGuard<'static, RingState>,
    wakeups: DeferredWakeups,
}

impl UringGuard {
    #[inline]
    pub(super) fn new(ring: &'static Ring, mut inner: MutexGuard<'static, RingState>, lock_owner: LockOwner) -> Option<Self> {
        if !inner.is_open {
            return None;
        }
        inner.acquire(lock_owner);
        Some(Self { ring, inner, wakeups: DeferredWakeups::default() })
    }

    /// Releases the lock until [`Unlocked::relock`]. The ring does not end meanwhile.
    #[inline(always)]
    pub(crate) fn unlock(&mut self) -> Unlocked<'_> {
        let wakeups = self.inner.commit(self.ring);
        let lock_owner = self.res.lock_owner;
        self.waiters.inside += 1;
        self.inner.release_shared();
        let inner = MutexGuard::unlock(&mut self.inner);
        drop(wakeups);
        Unlocked { inner, lock_owner }
    }

    /// Releases the lock while `f` runs.
    #[inline]
    pub(crate) fn unlocked<R>(&mut self, f: impl FnOnce() -> R) -> R {
        let unlocked = self.unlock();
        let result = f();
        unlocked.relock();
        result
    }

    /// Ends the ring: takes its state out of the slot.
    pub(crate) fn end(mut self) -> RingState {
        // A thread that was inside until now reads its CQEs from mappings that outlive the ring.
        self.wakeups = self.inner.commit(self.ring);
        self.inner.release_shared();
        core::mem::replace(&mut self.inner, RingState::vacant())
    }
}

/// A ring's guard without its lock.
#[derive(Debug)]
#[must_use]
pub(crate) struct Unlocked<'g> {
    inner: UnlockedMutex<'g, RingState>,
    lock_owner: LockOwner,
}

impl Unlocked<'_> {
    /// Takes the lock again.
    #[inline(always)]
    pub(crate) fn relock(self) {
        let state = self.inner.relock();
        state.acquire(self.lock_owner);
        state.waiters.inside -= 1;
    }
}

impl Deref for UringGuard {
    type Target = RingState;
    #[inline]
    fn deref(&self) -> &RingState {
        &self.inner
    }
}

impl DerefMut for UringGuard {
    #[inline]
    fn deref_mut(&mut self) -> &mut RingState {
        &mut self.inner
    }
}

impl Drop for UringGuard {
    #[inline]
    fn drop(&mut self) {
        if self.inner.is_open {
            self.wakeups = self.inner.commit(self.ring);
            self.inner.release_shared();
        }
    }
}

impl Ring {
    /// Locks the ring; `None` if it has been closed.
    #[inline]
    pub(crate) fn lock(&'static self, lock_owner: LockOwner) -> Option<UringGuard> {
        UringGuard::new(self, self.state.lock(), lock_owner)
    }

    /// As [`lock`](Self::lock), if no other thread holds it.
    pub(crate) fn try_lock(&'static self, lock_owner: LockOwner) -> Result<Option<UringGuard>, Busy> {
        self.state.try_lock().map(|state| UringGuard::new(self, state, lock_owner)).ok_or(Busy)
    }
}
