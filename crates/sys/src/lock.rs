//! Locks on futexes. No libc, no TLS, usable in any program's process.

use core::cell::UnsafeCell;
use core::fmt;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;

pub use crate::futex::{futex_wait, futex_wake};
#[cfg(loom)]
pub use crate::model::RawLock;
#[cfg(not(loom))]
pub use crate::raw_lock::RawLock;
pub use timed::{LockWaits, TimedLock};

mod timed;

/// What a [`Mutex`] is made of.
///
/// # Safety
/// From one `lock`, or `try_lock` that says `true`, until the `unlock` after it no other one ends so, and what was written
/// before that `unlock` is seen after the next.
pub unsafe trait RawMutex: Send + Sync + 'static {
    /// Unlocked.
    const NEW: Self;
    /// LockWaits for the lock.
    fn lock(&self);
    /// Takes it if nobody has it.
    fn try_lock(&self) -> bool;
    /// Gives it back.
    fn unlock(&self);
}

// SAFETY: see `raw_lock`; modelled there.
unsafe impl RawMutex for RawLock {
    const NEW: Self = Self::new();

    #[inline(always)]
    fn lock(&self) {
        Self::lock(self);
    }

    #[inline(always)]
    fn try_lock(&self) -> bool {
        Self::try_lock(self)
    }

    #[inline(always)]
    fn unlock(&self) {
        Self::unlock(self);
    }
}

/// A mutual exclusion lock: 4 bytes, or what `R` takes, and its value.
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
    /// An unlocked lock of this kind.
    pub const fn of(value: T) -> Self {
        Self { raw: R::NEW, is_locked_for_fork: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// What it is made of.
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

    /// The lock, if nobody holds it.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T, R>> {
        self.raw.try_lock().then(|| MutexGuard { lock: self })
    }

    /// Takes the lock without a guard: before fork(2), so that no other thread holds it at that moment.
    pub fn lock_for_fork(&self) {
        self.raw.lock();
        self.is_locked_for_fork.store(true, Relaxed);
    }

    /// Gives back what [`hold`](Self::lock_for_fork) took: by the same thread, or its copy in a forked child.
    pub fn unlock_after_fork(&self) {
        if !self.is_locked_for_fork.swap(false, Relaxed) {
            crate::process::die(b"uringlet: a lock was released that nobody held\n");
        }
        self.raw.unlock();
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
    /// Lets the lock go until [`UnlockedMutex::relock`].
    #[inline(always)]
    pub fn unlock<'g>(this: &'g mut Self) -> UnlockedMutex<'g, T, R> {
        this.lock.raw.unlock();
        UnlockedMutex { lock: this.lock }
    }
}

/// A guard without its lock, which nobody can use meanwhile.
#[must_use]
pub struct UnlockedMutex<'g, T: ?Sized, R: RawMutex = RawLock> {
    lock: &'g Mutex<T, R>,
}

impl<'g, T: ?Sized, R: RawMutex> UnlockedMutex<'g, T, R> {
    /// Takes the lock again.
    #[inline(always)]
    pub fn relock(self) -> &'g mut T {
        let lock = self.lock;
        core::mem::forget(self);
        lock.raw.lock();
        // SAFETY: the lock is held again, on behalf of the guard that is borrowed for 'g: this is the only reference.
        unsafe { &mut *lock.value.get() }
    }
}

impl<T: ?Sized, R: RawMutex> Drop for UnlockedMutex<'_, T, R> {
    fn drop(&mut self) {
        // The guard behind it believes that it has the lock.
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
        // SAFETY: the guard exists only while this thread holds the lock; `unlocked` has it borrowed mutably meanwhile.
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
