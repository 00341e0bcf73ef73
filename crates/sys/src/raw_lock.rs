//! A lock in one futex word.
//!
//! ```text
//!   UNLOCKED   free
//!   LOCKED     held, no waiters
//!   CONTENDED  held, threads may sleep on the word
//! ```
//!
//! A thread that has to sleep stores CONTENDED, and keeps that value when it gets the lock: others
//! may still sleep, and its unlock wakes one of them. The kernel compares the word before it puts a
//! thread to sleep, so an unlock in between is not missed.

#[cfg(all(test, loom))]
mod model;

use crate::futex::{futex_wait, futex_wake};
use crate::sync::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const UNLOCKED: u32 = 0;
const LOCKED: u32 = 1;
const CONTENDED: u32 = 2;

/// Polls of a held lock before sleeping: most locks are held for less time than a sleep takes.
const SPINS: u32 = if cfg!(loom) { 1 } else { 100 };

/// See the module.
#[derive(Debug)]
#[cfg_attr(loom, allow(unreachable_pub))]
pub struct RawLock(AtomicU32);

impl RawLock {
    crate::const_unless_loom! {
        pub(crate) fn new() -> Self {
            Self(AtomicU32::new(UNLOCKED))
        }
    }

    #[inline(always)]
    pub(crate) fn try_lock(&self) -> bool {
        self.0.compare_exchange(UNLOCKED, LOCKED, Acquire, Relaxed).is_ok()
    }

    #[inline(always)]
    pub(crate) fn lock(&self) {
        if !self.try_lock() {
            self.lock_slow();
        }
    }

    #[cold]
    fn lock_slow(&self) {
        for _ in 0..SPINS {
            if self.0.load(Relaxed) == UNLOCKED && self.try_lock() {
                return;
            }
            core::hint::spin_loop();
        }
        while self.0.swap(CONTENDED, Acquire) != UNLOCKED {
            let _ = futex_wait(&self.0, CONTENDED, u64::MAX);
        }
    }

    #[inline(always)]
    pub(crate) fn unlock(&self) {
        if self.0.swap(UNLOCKED, Release) == CONTENDED {
            futex_wake(&self.0, 1);
        }
    }
}
