//! What a [`Mutex`](super::Mutex) needs of the lock inside it.

#[cfg(loom)]
pub use crate::model::RawLock;
#[cfg(not(loom))]
pub use crate::raw_lock::RawLock;

/// The lock inside a [`Mutex`](super::Mutex), without the value.
///
/// # Safety
/// After a `lock`, or a `try_lock` that returned `true`, no other `lock` returns and no `try_lock`
/// returns `true` until `unlock`; and that `unlock` happens before the next successful one of them.
pub unsafe trait RawMutex: Send + Sync + 'static {
    /// Unlocked.
    const NEW: Self;
    /// LockWaits for the lock.
    fn lock(&self);
    /// Acquires the lock if it is free. Returns whether it did.
    fn try_lock(&self) -> bool;
    /// Releases the lock.
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
