//! A lock that knows how long it was waited for: for measurements. What it writes down it writes while it is held.

use super::{RawLock, RawMutex};
use crate::clock::ticks;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// See the module.
#[derive(Debug)]
pub struct TimedLock {
    raw: RawLock,
    taken: AtomicU64,
    waited: AtomicU64,
    ticks: AtomicU64,
}

/// How a lock was waited for, since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockWaits {
    /// How often it was taken.
    pub taken: u64,
    /// How often it was not free.
    pub waited: u64,
    /// How long all of these waits took, in [`ticks`].
    pub ticks: u64,
}

impl TimedLock {
    /// How it was waited for until now.
    #[must_use]
    pub fn waits(&self) -> LockWaits {
        LockWaits { taken: self.taken.load(Relaxed), waited: self.waited.load(Relaxed), ticks: self.ticks.load(Relaxed) }
    }

    /// Only who has the lock counts.
    fn add(counter: &AtomicU64, n: u64) {
        counter.store(counter.load(Relaxed) + n, Relaxed);
    }
}

// SAFETY: that of the lock inside, each of whose calls is passed on.
unsafe impl RawMutex for TimedLock {
    const NEW: Self = Self { raw: RawLock::new(), taken: AtomicU64::new(0), waited: AtomicU64::new(0), ticks: AtomicU64::new(0) };

    #[inline]
    fn lock(&self) {
        if !self.raw.try_lock() {
            let begun = ticks();
            self.raw.lock();
            Self::add(&self.waited, 1);
            Self::add(&self.ticks, ticks().saturating_sub(begun));
        }
        Self::add(&self.taken, 1);
    }

    #[inline]
    fn try_lock(&self) -> bool {
        let is_taken = self.raw.try_lock();
        if is_taken {
            Self::add(&self.taken, 1);
        }
        is_taken
    }

    #[inline]
    fn unlock(&self) {
        self.raw.unlock();
    }
}
