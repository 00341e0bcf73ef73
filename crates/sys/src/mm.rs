//! Mappings of this process: mmap(2), munmap(2), mprotect(2), madvise(2).
//!
//! Addresses are plain numbers: a mapping may be memory that the program uses as well.

use crate::linux::general::{MAP_ANONYMOUS, MAP_PRIVATE, MAP_SHARED, PROT_READ, PROT_WRITE};
use syscalls::{Errno, Sysno, syscall};

const READ_WRITE: u32 = PROT_READ | PROT_WRITE;
/// What mmap(2) takes instead of a descriptor for an anonymous mapping.
const NO_FD: i32 = -1;

/// A new private mapping without a file, readable and writable, all zero. `flags`: further `MAP_*`.
///
/// # Errors
/// Those of mmap(2): `ENOMEM`.
pub fn map_anonymous(len: usize, flags: u32) -> Result<usize, Errno> {
    // SAFETY: a new mapping overlaps nothing.
    unsafe { map(0, len, READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, NO_FD, 0) }
}

/// As [`map_anonymous`], shared with forked children.
///
/// # Errors
/// Those of mmap(2): `ENOMEM`.
pub fn map_anonymous_shared(len: usize) -> Result<usize, Errno> {
    // SAFETY: as above.
    unsafe { map(0, len, READ_WRITE, MAP_SHARED | MAP_ANONYMOUS, NO_FD, 0) }
}

/// A shared mapping of a file, readable and writable, from byte `offset`. `flags`: further `MAP_*`.
///
/// # Errors
/// Those of mmap(2).
pub fn map_file(fd: i32, len: usize, offset: u64, flags: u32) -> Result<usize, Errno> {
    // SAFETY: as above.
    unsafe { map(0, len, READ_WRITE, MAP_SHARED | flags, fd, offset) }
}

/// mmap(2): `protection` is `PROT_*`, `flags` are `MAP_*`.
///
/// # Safety
/// With `MAP_FIXED` nothing uses what was mapped there before.
///
/// # Errors
/// Those of mmap(2).
pub unsafe fn map(addr: usize, len: usize, protection: u32, flags: u32, fd: i32, offset: u64) -> Result<usize, Errno> {
    // SAFETY: the caller's.
    unsafe { syscall!(Sysno::mmap, addr, len, protection, flags, fd, offset) }
}

/// munmap(2).
///
/// # Safety
/// Nothing uses the range any more.
///
/// # Errors
/// `EINVAL`, `ENOMEM`.
pub unsafe fn unmap(addr: usize, len: usize) -> Result<(), Errno> {
    // SAFETY: the caller's.
    unsafe { syscall!(Sysno::munmap, addr, len) }.map(drop)
}

/// mprotect(2): `protection` is `PROT_*`.
///
/// # Safety
/// Nothing makes an access to the range that it forbids.
///
/// # Errors
/// `EACCES`, `EINVAL`, `ENOMEM`.
pub unsafe fn protect(addr: usize, len: usize, protection: u32) -> Result<(), Errno> {
    // SAFETY: the caller's.
    unsafe { syscall!(Sysno::mprotect, addr, len, protection) }.map(drop)
}

/// madvise(2): `advice` is `MADV_*`.
///
/// # Safety
/// Nothing needs what the advice discards.
///
/// # Errors
/// Those of madvise(2).
pub unsafe fn advise(addr: usize, len: usize, advice: u32) -> Result<(), Errno> {
    // SAFETY: the caller's.
    unsafe { syscall!(Sysno::madvise, addr, len, advice) }.map(drop)
}
