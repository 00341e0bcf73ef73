//! Holding a ring's lock: the guard, and what its release brings on.

use super::{LockOwner, Ring, RingState};
use core::ops::{Deref, DerefMut};
use core::sync::atomic::Ordering::AcqRel;
use uringlet_sys::biased_lock::EventSeq;
use uringlet_sys::fd;
use uringlet_sys::lock::{MutexGuard, UnlockedMutex, futex_wake};

/// The right to use a ring's state. Its drop publishes what was posted and wakes whom it concerns.
#[derive(Debug)]
pub(crate) struct UringGuard {
    pub(crate) ring: &'static Ring,
    // Fields drop in this order: the lock is released, then the wake-ups go out.
    inner: MutexGuard<'static, RingState>,
    wakes: Wakes,
}

/// Who must be told, once the lock is released: its drop tells them.
#[derive(Debug)]
pub(super) struct Wakes {
    ring: &'static Ring,
    /// Sleepers behind the driver.
    pub(super) waiters: bool,
    /// The driver's bell.
    pub(super) driver: Option<i32>,
    /// The program's eventfd.
    pub(super) eventfd: Option<i32>,
    /// Sleepers of other processes.
    pub(super) others: Option<EventSeq>,
}

impl UringGuard {
    #[inline]
    pub(super) fn new(ring: &'static Ring, mut inner: MutexGuard<'static, RingState>, lock_owner: LockOwner) -> Option<Self> {
        if !inner.is_open {
            return None;
        }
        inner.go_in(lock_owner);
        Some(Self { ring, inner, wakes: Wakes::none(ring) })
    }

    /// Lets the lock go until [`LetGo::take_back`]. The ring does not end meanwhile.
    #[inline(always)]
    pub(crate) fn let_go(&mut self) -> LetGo<'_> {
        let mut wakes = Wakes::none(self.ring);
        self.inner.commit(self.ring, &mut wakes);
        let lock_owner = self.res.lock_owner;
        self.waiters.inside += 1;
        self.inner.go_out();
        let away = MutexGuard::unlock(&mut self.inner);
        drop(wakes);
        LetGo { away, lock_owner }
    }

    /// Lets the lock go while `f` runs.
    #[inline]
    pub(crate) fn unlocked<R>(&mut self, f: impl FnOnce() -> R) -> R {
        let away = self.let_go();
        let result = f();
        away.take_back();
        result
    }

    /// Ends the ring: takes its state out.
    pub(crate) fn end(mut self) -> RingState {
        // A thread that was inside to the last reads its CQEs from mappings that outlive the ring.
        self.inner.commit(self.ring, &mut self.wakes);
        self.inner.go_out();
        core::mem::replace(&mut self.inner, RingState::vacant())
    }
}

/// A ring's guard without its lock.
#[derive(Debug)]
#[must_use]
pub(crate) struct LetGo<'g> {
    away: UnlockedMutex<'g, RingState>,
    lock_owner: LockOwner,
}

impl LetGo<'_> {
    /// Takes the lock again.
    #[inline(always)]
    pub(crate) fn take_back(self) {
        let state = self.away.relock();
        state.go_in(self.lock_owner);
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
            self.inner.commit(self.ring, &mut self.wakes);
            self.inner.go_out();
        }
    }
}

impl Wakes {
    #[inline]
    pub(super) fn none(ring: &'static Ring) -> Self {
        Self { ring, waiters: false, driver: None, eventfd: None, others: None }
    }
}

impl Drop for Wakes {
    #[inline]
    fn drop(&mut self) {
        if self.waiters {
            self.ring.bell.fetch_add(1, AcqRel);
            futex_wake(&self.ring.bell, u32::MAX);
        }
        if let Some(fd) = self.driver {
            fd::signal_eventfd(fd);
        }
        if let Some(fd) = self.eventfd {
            fd::signal_eventfd(fd);
        }
        if let Some(news) = self.others {
            news.wake();
        }
    }
}
