//! A lock that measures how long threads wait for it. It updates its numbers while it is held.

use super::raw_mutex::{RawLock, RawMutex};
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

/// How long threads waited for a lock, since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockWaits {
    /// How often it was acquired.
    pub taken: u64,
    /// How often it was not free at once.
    pub waited: u64,
    /// Duration of all these waits together, in [`ticks`].
    pub ticks: u64,
}

impl TimedLock {
    /// The numbers until now.
    #[must_use]
    pub fn waits(&self) -> LockWaits {
        LockWaits { taken: self.taken.load(Relaxed), waited: self.waited.load(Relaxed), ticks: self.ticks.load(Relaxed) }
    }

    /// Adds without an atomic addition: only the holder of the lock counts.
    fn add(counter: &AtomicU64, n: u64) {
        counter.store(counter.load(Relaxed) + n, Relaxed);
    }
}

// SAFETY: each call is passed on to the lock inside.
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
