//! A reference that is set while the process runs. Reads take no lock, so fork(2) needs no care.

use core::ptr;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{Acquire, Release};

/// A reference to a value that lives as long as the process.
#[derive(Debug)]
pub struct StaticRef<T: 'static> {
    value: AtomicPtr<T>,
}

impl<T: Sync> StaticRef<T> {
    /// A reference to nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { value: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The value, if one is set.
    #[inline]
    pub fn get(&'static self) -> Option<&'static T> {
        // SAFETY: null, or made from a `&'static T` by `set`.
        unsafe { self.value.load(Acquire).as_ref() }
    }

    /// Refers to `value` from now on.
    pub fn set(&'static self, value: &'static T) {
        self.value.store(ptr::from_ref(value).cast_mut(), Release);
    }
}

impl<T: Sync> Default for StaticRef<T> {
    fn default() -> Self {
        Self::new()
    }
}
