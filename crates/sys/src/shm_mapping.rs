//! Memory that the engine shares with the program, or with other processes. The engine makes no
//! references to its bytes, except to atomics.

use crate::arch::PAGE_SIZE;
use crate::fd::EngineFd;
use crate::io;
use crate::linux::general::{MFD_CLOEXEC, MREMAP_MAYMOVE};
use crate::mm;
use crate::process_shared::ProcessShared;
use crate::required_calls::is_mremap_denied;
use crate::user::{self, UserPtr};
use core::sync::atomic::{AtomicU32, AtomicU64};
use syscalls::{Errno, Sysno, syscall};

pub(crate) const PAGE: usize = PAGE_SIZE;

/// A shared anonymous mapping, a part of one, or memory of the program's (`IORING_SETUP_NO_MMAP`).
#[derive(Debug)]
pub(crate) struct ShmMapping {
    base: usize,
    len: usize,
    is_ours: bool,
    /// Where mremap(2) makes no second mapping: the file that the program maps instead.
    file: Option<EngineFd>,
}

impl ShmMapping {
    /// A placeholder without memory. It must not be accessed.
    pub(crate) const fn none() -> Self {
        Self { base: 0, len: 0, is_ours: false, file: None }
    }

    pub(crate) fn map(len: usize) -> Result<Self, Errno> {
        let len = len.next_multiple_of(PAGE);
        if is_mremap_denied() {
            return Self::map_memfd(len);
        }
        let base = mm::map_anonymous_shared(len)?;
        Ok(Self { base, len, is_ours: true, file: None })
    }

    #[cold]
    fn map_memfd(len: usize) -> Result<Self, Errno> {
        let file = EngineFd::adopt(io::number_of(io::memfd_create(io::ptr_of_slice(b"uringlet\0"), MFD_CLOEXEC)?));
        io::ftruncate(file.number(), len as i64)?;
        let base = mm::map_file(file.number(), len, 0, 0)?;
        Ok(Self { base, len, is_ours: true, file: Some(file) })
    }

    /// Maps the first `len` bytes of a file that never shrinks.
    pub(crate) fn map_file(fd: i32, len: usize) -> Result<Self, Errno> {
        let len = len.next_multiple_of(PAGE);
        let base = mm::map_file(fd, len, 0, 0)?;
        Ok(Self { base, len, is_ours: true, file: None })
    }

    pub(crate) fn from_user(base: UserPtr, len: usize) -> Result<Self, Errno> {
        if !base.addr().is_multiple_of(PAGE) {
            return Err(Errno::EINVAL);
        }
        if base.is_null() || !user::is_writable(base, len) {
            return Err(Errno::EFAULT);
        }
        Ok(Self { base: base.addr(), len, is_ours: false, file: None })
    }

    /// One mapping, and its parts, each of which begins with a page. They must not outlive it.
    pub(crate) fn map_parts<const N: usize>(lens: [usize; N]) -> Result<(Self, [Self; N]), Errno> {
        let whole = Self::map(lens.iter().map(|len| len.next_multiple_of(PAGE)).sum())?;
        let mut base = whole.base;
        let parts = lens.map(|len| {
            let part = Self { base, len, is_ours: false, file: None };
            base += len.next_multiple_of(PAGE);
            part
        });
        Ok((whole, parts))
    }

    /// The address of the first byte.
    pub(crate) fn base(&self) -> usize {
        self.base
    }

    /// Maps the same pages once more for the program.
    pub(crate) fn map_again(&self, len: usize) -> Result<usize, Errno> {
        self.map_part_again(self, len)
    }

    /// Maps the pages of a part once more for the program.
    ///
    /// # Errors
    /// `ENOMEM` for what is no part of it, or memory of the program's own.
    pub(crate) fn map_part_again(&self, part: &Self, len: usize) -> Result<usize, Errno> {
        let offset = part.base.wrapping_sub(self.base);
        if !self.is_ours || offset >= self.len {
            return Err(Errno::ENOMEM);
        }
        if let Some(file) = &self.file {
            return mm::map_file(file.number(), len, offset as u64, 0);
        }
        // SAFETY: an old size of 0 on a shared mapping makes a second mapping and leaves the first
        // alone. Accesses beyond its end raise SIGBUS, as with any file.
        unsafe { syscall!(Sysno::mremap, part.base, 0, len, MREMAP_MAYMOVE) }
    }

    /// The 4 bytes at `offset`.
    ///
    /// # Safety
    /// They lie in the mapping, 4-aligned.
    #[inline]
    pub(crate) unsafe fn u32(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: the caller's; both sides use them as atomics, and the mapping lives as long as
        // `self`.
        unsafe { &*((self.base + offset) as *const AtomicU32) }
    }

    /// The 8 bytes at `offset`.
    ///
    /// # Safety
    /// They lie in the mapping, 8-aligned.
    #[inline]
    pub(crate) unsafe fn u64(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { &*((self.base + offset) as *const AtomicU64) }
    }

    /// What processes share, at the start of the mapping.
    ///
    /// # Safety
    /// The mapping is large enough, was zero at first, and has no other use.
    #[inline]
    pub(crate) unsafe fn process_shared(&self) -> &ProcessShared {
        // SAFETY: the caller's; page aligned, atomics only.
        unsafe { &*(self.base as *const ProcessShared) }
    }
}

impl Drop for ShmMapping {
    fn drop(&mut self) {
        if self.is_ours {
            // SAFETY: our own mapping; the program has its own of the same pages.
            let _ = unsafe { mm::unmap(self.base, self.len) };
        }
    }
}
