//! Locks on futexes. No libc, no TLS, usable in any program's process.

use core::cell::UnsafeCell;
use core::fmt;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;

pub use crate::futex::{futex_wait, futex_wake};
#[cfg(loom)]
use crate::model::RawLock;
#[cfg(not(loom))]
use crate::raw_lock::RawLock;

/// A mutual exclusion lock, 4 bytes and its value.
pub struct Mutex<T: ?Sized> {
    raw: RawLock,
    /// Taken by [`hold`](Self::hold), without a guard.
    is_held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the lock hands out one reference at a time.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}

impl<T> Mutex<T> {
    /// An unlocked lock.
    pub const fn new(value: T) -> Self {
        Self { raw: RawLock::new(), is_held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.raw.lock();
        MutexGuard { lock: self }
    }

    /// The lock, if nobody holds it.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.raw.try_lock().then(|| MutexGuard { lock: self })
    }

    /// Takes the lock without a guard: before fork(2), so that no other thread holds it at that moment.
    pub fn hold(&self) {
        self.raw.lock();
        self.is_held.store(true, Relaxed);
    }

    /// Gives back what [`hold`](Self::hold) took: by the same thread, or its copy in a forked child.
    pub fn release(&self) {
        if !self.is_held.swap(false, Relaxed) {
            crate::process::die(b"uringlet: a lock was released that nobody held\n");
        }
        self.raw.unlock();
    }
}

impl<T: ?Sized> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex")
    }
}

/// The right to use what a [`Mutex`] guards.
#[must_use]
pub struct MutexGuard<'a, T: ?Sized> {
    lock: &'a Mutex<T>,
}

impl<T: ?Sized> MutexGuard<'_, T> {
    /// Lets the lock go until [`Away::take_back`].
    #[inline(always)]
    pub fn let_go<'g>(this: &'g mut Self) -> Away<'g, T> {
        this.lock.raw.unlock();
        Away { lock: this.lock }
    }
}

/// A guard without its lock, which nobody can use meanwhile.
#[must_use]
pub struct Away<'g, T: ?Sized> {
    lock: &'g Mutex<T>,
}

impl<'g, T: ?Sized> Away<'g, T> {
    /// Takes the lock again.
    #[inline(always)]
    pub fn take_back(self) -> &'g mut T {
        let lock = self.lock;
        core::mem::forget(self);
        lock.raw.lock();
        // SAFETY: the lock is held again, on behalf of the guard that is borrowed for 'g: this is the only reference.
        unsafe { &mut *lock.value.get() }
    }
}

impl<T: ?Sized> Drop for Away<'_, T> {
    fn drop(&mut self) {
        // The guard behind it believes that it has the lock.
        self.lock.raw.lock();
    }
}

impl<T: ?Sized> fmt::Debug for Away<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Away")
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists only while this thread holds the lock; `unlocked` has it borrowed mutably meanwhile.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; `&mut self` makes it the only reference.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.raw.unlock();
    }
}

impl<T: ?Sized> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MutexGuard")
    }
}
