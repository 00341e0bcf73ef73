//! Stands in for `area` with `--cfg loom`: memory whose every word is loom's. Its clone is the program's mapping of the
//! same pages.

use crate::biased_lock::BiasedLock;
use crate::sync::AtomicU32;
use crate::user::UserPtr;
use core::sync::atomic::Ordering;
use loom::cell::UnsafeCell;
use std::sync::Arc;
use std::vec::Vec;
use syscalls::Errno;

/// A page of shared_lock is not made of words here.
pub(crate) const PAGE: usize = 0;

/// What is used in units of 4 bytes and what in units of 8 is apart, at the same offsets: nothing is used as both.
#[derive(Clone, Debug)]
pub(crate) struct ShmMapping {
    halves: Arc<Vec<AtomicU32>>,
    words: Arc<Vec<ModelWord>>,
    shared_lock: Arc<BiasedLock>,
}

/// What SQEs and CQEs are made of. Their words are atomics only because a program may scribble over them at any time;
/// with one that keeps to the protocol they are never used by two threads at once, and here loom says so if they are.
#[derive(Debug, Default)]
pub(crate) struct ModelWord(UnsafeCell<u64>);

// SAFETY: loom runs all threads of a model on one thread of the system, and reports two accesses that are not ordered.
unsafe impl Sync for ModelWord {}

impl ModelWord {
    pub(crate) fn load(&self, _order: Ordering) -> u64 {
        // SAFETY: as above.
        self.0.with(|value| unsafe { *value })
    }

    pub(crate) fn store(&self, value: u64, _order: Ordering) {
        // SAFETY: as above.
        self.0.with_mut(|word| unsafe { *word = value });
    }
}

impl ShmMapping {
    pub(crate) fn none() -> Self {
        Self { halves: Arc::default(), words: Arc::default(), shared_lock: Arc::default() }
    }

    pub(crate) fn map(len: usize) -> Result<Self, Errno> {
        let halves = (0..len.div_ceil(4)).map(|_| AtomicU32::new(0)).collect();
        let words = (0..len.div_ceil(8)).map(|_| ModelWord::default()).collect();
        Ok(Self { halves: Arc::new(halves), words: Arc::new(words), shared_lock: Arc::default() })
    }

    /// A model's program brings no memory of its own.
    pub(crate) fn from_user(_base: UserPtr, _len: usize) -> Result<Self, Errno> {
        Err(Errno::EFAULT)
    }

    /// As [`from_user`](Self::from_user): it has a clone instead.
    pub(crate) fn map_again(&self, _len: usize) -> Result<usize, Errno> {
        Err(Errno::EINVAL)
    }

    /// The 4 bytes at `offset`.
    ///
    /// # Safety
    /// None is asked in a model: the index is checked.
    pub(crate) unsafe fn u32(&self, offset: usize) -> &AtomicU32 {
        &self.halves[offset / 4]
    }

    /// The 8 bytes at `offset`.
    ///
    /// # Safety
    /// As above.
    pub(crate) unsafe fn u64(&self, offset: usize) -> &ModelWord {
        &self.words[offset / 8]
    }

    /// What is common to processes.
    ///
    /// # Safety
    /// As above.
    pub(crate) unsafe fn biased_lock(&self) -> &BiasedLock {
        &self.shared_lock
    }
}
