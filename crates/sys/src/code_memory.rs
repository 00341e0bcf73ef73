//! Memory that becomes code.

use crate::fd::EngineFd;
use crate::io;
use crate::linux::general::{MAP_FIXED, MAP_PRIVATE, MFD_CLOEXEC, PROT_EXEC, PROT_READ};
use crate::mm;
use crate::user_ptr::UserPtr;
use syscalls::Errno;

/// Makes an anonymous private mapping of whole pages code: by mprotect(2), or by a file of the same
/// content where a filter denies that (systemd's `MemoryDenyWriteExecute`).
///
/// # Safety
/// The mapping is complete: nothing writes to it any more.
///
/// # Errors
/// Those of mprotect(2), memfd_create(2) and mmap(2).
pub unsafe fn make_code(addr: usize, len: usize) -> Result<(), Errno> {
    const CODE: u32 = PROT_READ | PROT_EXEC;
    // SAFETY: the caller's.
    if unsafe { mm::protect(addr, len, CODE) }.is_ok() {
        return Ok(());
    }
    let file = EngineFd::adopt(io::number_of(io::memfd_create(io::ptr_of_slice(b"uringlet\0"), MFD_CLOEXEC)?));
    if io::write(file.number(), UserPtr::new(addr), len)? != len {
        return Err(Errno::ENOSPC);
    }
    // SAFETY: the same bytes take the place of the mapping.
    unsafe { mm::map(addr, len, CODE, MAP_PRIVATE | MAP_FIXED, file.number(), 0) }.map(drop)
}
