//! Memory that we share with the program, or with forked processes. No reference to its bytes is ever made, except to
//! atomics.

use crate::biased_lock::BiasedLock;
use crate::user::{self, UserPtr};
use core::sync::atomic::{AtomicU32, AtomicU64};
use syscalls::{Errno, Sysno, raw_syscall, syscall};

pub(crate) const PAGE: usize = 4096;

/// A shared anonymous mapping, or memory of the program's (`IORING_SETUP_NO_MMAP`).
#[derive(Debug)]
pub(crate) struct ShmMapping {
    base: usize,
    len: usize,
    is_ours: bool,
}

impl ShmMapping {
    /// No memory: never to be used.
    pub(crate) const fn none() -> Self {
        Self { base: 0, len: 0, is_ours: false }
    }

    pub(crate) fn map(len: usize) -> Result<Self, Errno> {
        const PROT_READ_WRITE: usize = 3;
        const MAP_SHARED_ANONYMOUS: usize = 0x01 | 0x20;
        let len = len.next_multiple_of(PAGE);
        // SAFETY: a new anonymous mapping overlaps nothing.
        let base = unsafe { syscall!(Sysno::mmap, 0, len, PROT_READ_WRITE, MAP_SHARED_ANONYMOUS, usize::MAX, 0) }?;
        Ok(Self { base, len, is_ours: true })
    }

    /// The first `len` bytes of a file.
    pub(crate) fn map_file(fd: i32, len: usize) -> Result<Self, Errno> {
        const PROT_READ_WRITE: usize = 3;
        const MAP_SHARED: usize = 1;
        let len = len.next_multiple_of(PAGE);
        // SAFETY: a new mapping overlaps nothing; the file is ours and never shrinks.
        let base = unsafe { syscall!(Sysno::mmap, 0, len, PROT_READ_WRITE, MAP_SHARED, fd, 0) }?;
        Ok(Self { base, len, is_ours: true })
    }

    pub(crate) fn from_user(base: UserPtr, len: usize) -> Result<Self, Errno> {
        if !base.addr().is_multiple_of(PAGE) {
            return Err(Errno::EINVAL);
        }
        if base.is_null() || !user::is_writable(base, len) {
            return Err(Errno::EFAULT);
        }
        Ok(Self { base: base.addr(), len, is_ours: false })
    }

    /// Maps the same pages once more for the program.
    pub(crate) fn map_again(&self, len: usize) -> Result<usize, Errno> {
        const MREMAP_MAYMOVE: usize = 1;
        if !self.is_ours {
            return Err(Errno::ENOMEM);
        }
        // SAFETY: an old size of 0 on a shared mapping makes a second mapping and leaves the first alone; what is beyond
        // its end raises SIGBUS, as behind any file.
        unsafe { syscall!(Sysno::mremap, self.base, 0, len, MREMAP_MAYMOVE) }
    }

    /// The 4 bytes at `offset`.
    ///
    /// # Safety
    /// They lie in the area, 4-aligned.
    #[inline]
    pub(crate) unsafe fn u32(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: the caller's; both sides use them as atomics, and the mapping lives as long as `self`.
        unsafe { &*((self.base + offset) as *const AtomicU32) }
    }

    /// The 8 bytes at `offset`.
    ///
    /// # Safety
    /// They lie in the area, 8-aligned.
    #[inline]
    pub(crate) unsafe fn u64(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { &*((self.base + offset) as *const AtomicU64) }
    }

    /// What is common to processes, at the start.
    ///
    /// # Safety
    /// The area is large enough, zero when it was mapped, and used as this only.
    #[inline]
    pub(crate) unsafe fn biased_lock(&self) -> &BiasedLock {
        // SAFETY: the caller's; page aligned, atomics only.
        unsafe { &*(self.base as *const BiasedLock) }
    }
}

impl Drop for ShmMapping {
    fn drop(&mut self) {
        if self.is_ours {
            // SAFETY: our own mapping; the program has its own of the same pages.
            unsafe { raw_syscall!(Sysno::munmap, self.base, self.len) };
        }
    }
}
