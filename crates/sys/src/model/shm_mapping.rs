//! Replaces `shm_mapping` with `--cfg loom`: memory made of loom's words. Its clone is the
//! program's mapping of the same pages.

use crate::process_shared::ProcessShared;
use crate::sync::AtomicU32;
use crate::user::UserPtr;
use core::sync::atomic::Ordering;
use loom::cell::UnsafeCell;
use std::sync::Arc;
use std::vec::Vec;
use syscalls::Errno;

/// What processes share needs no words here.
pub(crate) const PAGE: usize = 0;

/// Accesses of 4 bytes and of 8 bytes go to different memory at the same offsets: no offset is used
/// with both sizes.
#[derive(Clone, Debug)]
pub(crate) struct ShmMapping {
    halves: Arc<Vec<AtomicU32>>,
    words: Arc<Vec<ModelWord>>,
    process_shared: Arc<ProcessShared>,
}

/// A word of SQEs and CQEs. Outside models these are atomics only because a program may overwrite
/// them at any time. A program that keeps to the protocol never makes two threads use one at once;
/// loom reports it if two do.
#[derive(Debug, Default)]
pub(crate) struct ModelWord(UnsafeCell<u64>);

// SAFETY: loom runs all threads of a model on one system thread, and reports two accesses that are
// not ordered.
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
        Self { halves: Arc::default(), words: Arc::default(), process_shared: Arc::default() }
    }

    pub(crate) fn map(len: usize) -> Result<Self, Errno> {
        let halves = (0..len.div_ceil(4)).map(|_| AtomicU32::new(0)).collect();
        let words = (0..len.div_ceil(8)).map(|_| ModelWord::default()).collect();
        Ok(Self { halves: Arc::new(halves), words: Arc::new(words), process_shared: Arc::default() })
    }

    /// Parts with memory of their own.
    pub(crate) fn map_parts<const N: usize>(lens: [usize; N]) -> Result<(Self, [Self; N]), Errno> {
        Ok((Self::none(), lens.map(|len| Self::map(len).expect("a model has memory"))))
    }

    /// A model's program supplies no memory.
    pub(crate) fn from_user(_base: UserPtr, _len: usize) -> Result<Self, Errno> {
        Err(Errno::EFAULT)
    }

    /// The address of the first byte. A model accesses nothing by it.
    pub(crate) fn base(&self) -> usize {
        self.words.as_ptr().addr()
    }

    /// As [`from_user`](Self::from_user): the program has a clone instead.
    pub(crate) fn map_again(&self, _len: usize) -> Result<usize, Errno> {
        Err(Errno::EINVAL)
    }

    /// As above.
    pub(crate) fn map_part_again(&self, _part: &Self, _len: usize) -> Result<usize, Errno> {
        Err(Errno::EINVAL)
    }

    /// The 4 bytes at `offset`.
    ///
    /// # Safety
    /// No requirement in a model: the index is checked.
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

    /// What processes share.
    ///
    /// # Safety
    /// As above.
    pub(crate) unsafe fn process_shared(&self) -> &ProcessShared {
        &self.process_shared
    }
}
