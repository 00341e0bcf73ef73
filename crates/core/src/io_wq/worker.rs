//! A worker as other threads know it: how it parks, and how it is woken and interrupted.

use super::interrupt::InterruptGuard;
use alloc::sync::Arc;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use uringlet_sys::Errno;
use uringlet_sys::lock::{futex_wait, futex_wake};
use uringlet_sys::sync::AtomicU32;

/// See the module.
#[derive(Debug)]
pub struct Worker {
    /// The futex it parks on: 1 once it is woken.
    is_woken: AtomicU32,
    interrupts: InterruptGuard,
}

impl Worker {
    /// A worker without a thread.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self { is_woken: AtomicU32::new(0), interrupts: InterruptGuard::new() })
    }

    /// The calling thread is the worker's.
    pub fn bind_thread(&self) {
        self.interrupts.bind_thread();
    }

    /// Its thread; 0 before that runs.
    #[must_use]
    pub fn tid(&self) -> u32 {
        self.interrupts.bound_thread()
    }

    /// Before it joins the idle workers: it is not woken yet.
    pub fn prepare_park(&self) {
        self.is_woken.store(0, Relaxed);
    }

    /// From now on it does not sleep. Under the pool lock; [`wake`](Self::wake) follows without it.
    pub fn mark_woken(&self) {
        // Pairs with `park`.
        self.is_woken.store(1, Release);
    }

    /// If it sleeps, wakes it.
    pub fn wake(&self) {
        futex_wake(&self.is_woken, 1);
    }

    /// Sleeps until woken, at most until `deadline_ns`. `false`: the deadline has passed.
    #[must_use]
    pub fn park(&self, deadline_ns: u64) -> bool {
        // Pairs with `mark_woken`.
        while self.is_woken.load(Acquire) == 0 {
            if futex_wait(&self.is_woken, 0, deadline_ns) == Err(Errno::ETIMEDOUT) {
                return self.is_woken.load(Acquire) == 1;
            }
        }
        true
    }

    /// Its next item begins.
    pub(super) fn begin(&self) {
        self.interrupts.begin();
    }

    /// The item that it runs is cancelled.
    pub(super) fn cancel(&self) {
        self.interrupts.cancel(self.tid());
    }

    /// When it may be interrupted: for its work.
    #[must_use]
    pub const fn interrupts(&self) -> &InterruptGuard {
        &self.interrupts
    }
}
