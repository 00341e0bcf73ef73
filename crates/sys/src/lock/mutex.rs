//! A lock around a value.

use super::raw_mutex::{RawLock, RawMutex};
use crate::process;
use core::cell::UnsafeCell;
use core::fmt;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;

/// A mutual exclusion lock: the value, and 4 bytes (or the size of `R`).
pub struct Mutex<T: ?Sized, R = RawLock> {
    raw: R,
    /// Taken by [`hold`](Self::lock_for_fork), without a guard.
    is_locked_for_fork: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the lock hands out one reference at a time.
unsafe impl<T: ?Sized + Send, R: Send> Send for Mutex<T, R> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send, R: Sync> Sync for Mutex<T, R> {}

impl<T> Mutex<T> {
    /// An unlocked lock.
    pub const fn new(value: T) -> Self {
        Self::of(value)
    }
}

impl<T, R: RawMutex> Mutex<T, R> {
    /// An unlocked lock whose raw lock is an `R`.
    pub const fn of(value: T) -> Self {
        Self { raw: R::NEW, is_locked_for_fork: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// The raw lock.
    pub const fn raw(&self) -> &R {
        &self.raw
    }
}

impl<T: ?Sized, R: RawMutex> Mutex<T, R> {
    /// LockWaits for the lock.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T, R> {
        self.raw.lock();
        MutexGuard { lock: self }
    }

    /// Acquires the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T, R>> {
        self.raw.try_lock().then(|| MutexGuard { lock: self })
    }

    /// Acquires the lock without a guard: before fork(2), so that no other thread holds it at that
    /// moment.
    pub fn lock_for_fork(&self) {
        self.raw.lock();
        self.is_locked_for_fork.store(true, Relaxed);
    }

    /// Gives back what [`hold`](Self::lock_for_fork) took: by the same thread, or its copy in a
    /// forked child.
    pub fn unlock_after_fork(&self) {
        if !self.is_locked_for_fork.swap(false, Relaxed) {
            process::die(b"uringlet: unlock_after_fork without lock_for_fork\n");
        }
        self.raw.unlock();
    }
}

impl<T, R: RawMutex> Mutex<T, R> {
    /// In a copy of a process that nobody has claimed yet ([`process::begin_claim`]): a thread that
    /// the copy does not have holds the lock if it is held. It is released, and `rebuild` replaces
    /// the value, which that thread may have left half changed.
    pub fn recover_in_copy(&self, rebuild: impl FnOnce(T) -> T) {
        if !process::is_unclaimed_copy() {
            process::die(b"uringlet: recover_in_copy in a claimed process\n");
        }
        self.is_locked_for_fork.store(false, Relaxed);
        if self.try_lock().is_none() {
            // SAFETY: the one thread that prepares the copy is the only one in the engine.
            unsafe {
                let value = self.value.get();
                value.write(rebuild(value.read()));
            }
            self.raw.unlock();
        }
    }
}

impl<T: ?Sized, R> fmt::Debug for Mutex<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex")
    }
}

/// The right to use what a [`Mutex`] guards.
#[must_use]
pub struct MutexGuard<'a, T: ?Sized, R: RawMutex = RawLock> {
    lock: &'a Mutex<T, R>,
}

impl<T: ?Sized, R: RawMutex> MutexGuard<'_, T, R> {
    /// Releases the lock until [`UnlockedMutex::relock`].
    #[inline(always)]
    pub fn unlock<'g>(this: &'g mut Self) -> UnlockedMutex<'g, T, R> {
        this.lock.raw.unlock();
        UnlockedMutex { lock: this.lock }
    }
}

/// A guard whose lock is released for a while. The borrow keeps the guard from use meanwhile.
#[must_use]
pub struct UnlockedMutex<'g, T: ?Sized, R: RawMutex = RawLock> {
    lock: &'g Mutex<T, R>,
}

impl<'g, T: ?Sized, R: RawMutex> UnlockedMutex<'g, T, R> {
    /// Acquires the lock again.
    #[inline(always)]
    pub fn relock(self) -> &'g mut T {
        let lock = self.lock;
        core::mem::forget(self);
        lock.raw.lock();
        // SAFETY: the lock is held again, on behalf of the guard that is borrowed for 'g: this is
        // the only reference.
        unsafe { &mut *lock.value.get() }
    }
}

impl<T: ?Sized, R: RawMutex> Drop for UnlockedMutex<'_, T, R> {
    fn drop(&mut self) {
        // The guard behind it assumes that the lock is held.
        self.lock.raw.lock();
    }
}

impl<T: ?Sized, R: RawMutex> fmt::Debug for UnlockedMutex<'_, T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UnlockedMutex")
    }
}

impl<T: ?Sized, R: RawMutex> Deref for MutexGuard<'_, T, R> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists only while this thread holds the lock; an `UnlockedMutex`
        // borrows it mutably.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized, R: RawMutex> DerefMut for MutexGuard<'_, T, R> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; `&mut self` makes it the only reference.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized, R: RawMutex> Drop for MutexGuard<'_, T, R> {
    #[inline]
    fn drop(&mut self) {
        self.lock.raw.unlock();
    }
}

impl<T: ?Sized, R: RawMutex> fmt::Debug for MutexGuard<'_, T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MutexGuard")
    }
}
