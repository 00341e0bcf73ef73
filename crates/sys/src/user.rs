//! Checked copies between the engine and the program's memory.

use crate::arch::PAGE_SIZE;
use crate::linux::general::MADV_POPULATE_WRITE;
use crate::process::with_memory_id;
use crate::required_calls::is_denial;
#[cfg(not(loom))]
use crate::uaccess;
use syscalls::{Errno, Sysno, syscall};
use uringlet_abi as abi;

pub use crate::user_ptr::{Pod, UserPtr};

/// Evidence of the promise that the program whose rings the engine serves keeps io_uring's rules.
///
/// After it [`UserPtr`]s may flow through safe code: the kernel checks that an address is mapped,
/// but only the program can promise that what it named as a buffer is one.
#[derive(Clone, Copy, Debug)]
pub struct AppPromise(());

impl AppPromise {
    /// Makes the promise.
    ///
    /// # Safety
    /// All code that writes SQEs to the rings set up with this promise keeps every buffer valid,
    /// and unused by others, until its CQE. io_uring itself requires this.
    #[must_use]
    pub const unsafe fn given() -> Self {
        Self(())
    }
}

macro_rules! pod {
    ($($t:ty),* $(,)?) => {
        // SAFETY: integers, and repr(C) structures of integers without padding (their sizes are
        // asserted in abi).
        $(unsafe impl Pod for $t {})*
    };
}

pod!(
    u8,
    u16,
    u32,
    i32,
    u64,
    i64,
    [u64; 2],
    [u64; 3],
    abi::Sqe,
    abi::UringParams,
    abi::Timespec,
    abi::GeteventsArg,
    abi::register::FilesUpdate,
    abi::register::QueryHdr,
    abi::register::ClockReg,
    abi::register::NapiReg,
    abi::register::MemRegion,
    abi::register::RegionDesc,
    abi::register::RegisteredWait,
    abi::register::ZcrxReg,
    abi::register::ZcrxArea,
    abi::register::ZcrxRefill,
    abi::register::ZcrxControl,
    abi::register::CloneBuffers,
    abi::register::RsrcRegister,
    abi::register::RsrcUpdate,
    abi::register::RsrcUpdate2,
    abi::register::BufReg,
    abi::register::BufStatus,
    abi::register::BpfFilterReg,
    abi::register::Restriction,
    abi::register::TaskRestriction,
    abi::register::SyncCancelReg,
    abi::register::FileIndexRange,
    abi::register::Iovec,
    crate::signal::KernelSigaction,
);

/// Reads one value.
///
/// # Errors
/// `EFAULT` if the bytes are not readable.
pub fn read<T: Pod>(src: UserPtr) -> Result<T, Errno> {
    // SAFETY: any bytes are a value of a Pod type.
    let mut value = unsafe { core::mem::zeroed::<T>() };
    read_slice(core::slice::from_mut(&mut value), src)?;
    Ok(value)
}

/// Reads a value without a system call, from bytes that the kernel has just read successfully.
///
/// Only for bytes that a system call of the same request has read: the program promised
/// ([`AppPromise`]) to leave them alone until the CQE.
#[inline]
#[must_use]
pub fn read_mapped<T: Pod>(src: UserPtr) -> T {
    // SAFETY: the kernel read these bytes just now, so they are mapped, and the promise keeps them
    // so.
    unsafe { core::ptr::read_unaligned(src.addr() as *const T) }
}

/// Fills `dst` from the program's memory.
///
/// # Errors
/// `EFAULT` if not all bytes are readable.
pub fn read_slice<T: Pod>(dst: &mut [T], src: UserPtr) -> Result<(), Errno> {
    let len = size_of_val(dst);
    let done = copy(Sysno::process_vm_readv, dst.as_mut_ptr() as usize, src, len)?;
    if done == len { Ok(()) } else { Err(Errno::EFAULT) }
}

/// Whether the word at `src` can be read; `None`: the system does not say. For a program that may
/// be confined to few system calls: this one is the least likely to be forbidden.
#[must_use]
pub fn is_word_readable(src: UserPtr) -> Option<bool> {
    const NO_SUCH_OPERATION: u32 = u32::MAX;
    const SET_BYTES: usize = 8;
    // SAFETY: the kernel reads the set, finds that the operation does not exist, and changes
    // nothing.
    match unsafe { syscall!(Sysno::rt_sigprocmask, NO_SUCH_OPERATION, src.addr(), 0, SET_BYTES) } {
        Err(Errno::EINVAL) => Some(true),
        Err(Errno::EFAULT) => Some(false),
        _ => None,
    }
}

/// Writes one value.
///
/// # Errors
/// `EFAULT` if the bytes are not writable.
pub fn write<T: Pod>(dst: UserPtr, value: &T) -> Result<(), Errno> {
    write_slice(dst, core::slice::from_ref(value))
}

/// Writes values to the program's memory.
///
/// # Errors
/// `EFAULT` if not all bytes are writable.
pub fn write_slice<T: Pod>(dst: UserPtr, src: &[T]) -> Result<(), Errno> {
    let len = size_of_val(src);
    let done = copy(Sysno::process_vm_writev, src.as_ptr() as usize, dst, len)?;
    if done == len { Ok(()) } else { Err(Errno::EFAULT) }
}

/// Copies the NUL-terminated string at `src` (with its NUL) into `dst`.
///
/// # Errors
/// `EFAULT` if it is not readable, `ENAMETOOLONG` if it does not fit.
pub fn read_cstr(dst: &mut [u8], src: UserPtr) -> Result<usize, Errno> {
    let mut done = 0;
    while done < dst.len() {
        let from = src.add(done);
        // Not beyond a page boundary: the string may end before it, and the next page may be
        // unmapped.
        let n = (PAGE_SIZE - from.addr() % PAGE_SIZE).min(dst.len() - done);
        read_slice(&mut dst[done..done + n], from)?;
        if let Some(end) = dst[done..done + n].iter().position(|&b| b == 0) {
            return Ok(done + end + 1);
        }
        done += n;
    }
    Err(Errno::ENAMETOOLONG)
}

/// Whether all of `len` bytes can be read and written.
#[must_use]
pub fn is_writable(addr: UserPtr, len: usize) -> bool {
    let mut at = 0;
    while at < len {
        let probe = addr.add(at);
        let Ok(byte) = read::<u8>(probe) else { return false };
        if write(probe, &byte).is_err() {
            return false;
        }
        at += PAGE_SIZE - probe.addr() % PAGE_SIZE;
    }
    true
}

/// Makes all of `len` bytes present and writable, as pinning would. Returns whether they are.
#[must_use]
pub fn populate(addr: UserPtr, len: usize) -> bool {
    let first = addr.addr() & !(PAGE_SIZE - 1);
    let Some(end) = addr.addr().checked_add(len) else { return false };
    // SAFETY: faults pages in as a write that changes nothing would; the kernel checks the range.
    match unsafe { syscall!(Sysno::madvise, first, end - first, MADV_POPULATE_WRITE) } {
        Ok(_) => true,
        // Before Linux 5.14, denied by a filter, or not writable: probe each page.
        Err(errno) if errno == Errno::EINVAL || is_denial(errno) => is_writable(addr, len),
        Err(_) => false,
    }
}

/// Copies `len` bytes within the program's memory. Returns the bytes copied: fewer where an address
/// is bad.
#[must_use]
pub fn copy_in_user(to: UserPtr, from: UserPtr, len: usize) -> usize {
    #[cfg(not(loom))]
    if let Some(done) = uaccess::copy_if_guarded(to, from, len) {
        return done;
    }
    copy(Sysno::process_vm_readv, to.addr(), from, len).unwrap_or(0)
}

fn copy(nr: Sysno, ours: usize, theirs: UserPtr, len: usize) -> Result<usize, Errno> {
    if len == 0 {
        return Ok(0);
    }
    let local = [ours, len];
    let remote = [theirs.addr(), len];
    // SAFETY: `ours` is a live buffer of `len` bytes (callers pass slices of Pod), or the program's
    // as `AppPromise` says; the kernel checks both sides. The memory is our own, so no permission
    // is needed.
    let done = with_memory_id(|id| unsafe { syscall!(nr, id, local.as_ptr(), 1, remote.as_ptr(), 1, 0) });
    #[cfg(not(loom))]
    if let Err(errno) = done
        && is_denial(errno)
    {
        let ours = UserPtr::new(ours);
        let (to, from) = if nr == Sysno::process_vm_readv { (ours, theirs) } else { (theirs, ours) };
        return uaccess::copy_if_denied(to, from, len);
    }
    done
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::io;

    #[test]
    fn copies_stop_at_a_bad_address() {
        let from = *b"some bytes";
        let mut to = [0_u8; 10];
        let (a, b) = (io::ptr_of_mut(&mut to), io::ptr_of(&from));
        assert_eq!(copy_in_user(a, b, 10), 10);
        assert_eq!(to, from);
        assert_eq!(copy_in_user(UserPtr::NULL, b, 10), 0);
        assert_eq!(copy_in_user(a, UserPtr::new(8), 10), 0);
    }
}
