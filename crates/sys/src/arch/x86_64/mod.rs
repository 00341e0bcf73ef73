//! x86-64. See [`arch`](super) for what each item is.

mod client_request;
mod memory;
mod note;
mod thread;
mod user_copy;

pub(crate) use client_request::client_request;
pub(crate) use note::stats_note;
pub(crate) use thread::{noop_sigaction, start_thread, unmap_and_exit};
pub(crate) use user_copy::{copy_fixup, copy_user};

use crate::linux::general::pollfd;
pub(crate) use crate::linux::ptrace::AUDIT_ARCH_X86_64 as AUDIT_ARCH;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
use syscalls::{Errno, Sysno, syscall};

/// `e_machine` of its executables.
pub(crate) const ELF_MACHINE: u16 = 62;
/// Bytes of a page.
pub(crate) const PAGE_SIZE: usize = 4096;
/// Bits of an address of a program: the kernel has the upper half of the address space.
pub(crate) const USER_ADDRESS_BITS: u32 = 47;

/// The time stamp counter: 1 to 5 ticks a nanosecond, about 10 ns a read.
#[inline(always)]
pub(crate) fn ticks() -> u64 {
    // SAFETY: reads a counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// How [`thread_pointer`] is read: the self pointer that libc keeps at the segment's base, the base
/// by an instruction, or by a system call.
const BY_SELF_POINTER: u8 = 0;
const BY_INSTRUCTION: u8 = 1;
const BY_SYSTEM_CALL: u8 = 2;

static POINTER_ROAD: AtomicU8 = AtomicU8::new(BY_SELF_POINTER);

/// From now on the base of `%fs` is read, not the word there: Go has its own data there.
/// `features`: the word of `AT_HWCAP2`.
pub(crate) fn read_thread_register(features: usize) {
    /// `HWCAP2_FSGSBASE`: the kernel allows the instruction.
    const FSGSBASE: usize = 1 << 1;
    let road = if features & FSGSBASE != 0 { BY_INSTRUCTION } else { BY_SYSTEM_CALL };
    POINTER_ROAD.store(road, Relaxed);
}

/// The base of `%fs`. glibc, musl and Zig keep that address in the first word there (System V ABI,
/// thread-local storage).
#[inline]
pub(crate) fn thread_pointer() -> u64 {
    let pointer: u64;
    match POINTER_ROAD.load(Relaxed) {
        // SAFETY: reads the first word of the thread control block.
        BY_SELF_POINTER => unsafe {
            core::arch::asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, readonly, preserves_flags));
        },
        // SAFETY: reads a register; the kernel has said that it may be read.
        BY_INSTRUCTION => unsafe {
            core::arch::asm!("rdfsbase {}", out(reg) pointer, options(nomem, nostack, preserves_flags));
        },
        _ => pointer = segment_base(),
    }
    pointer
}

#[cold]
fn segment_base() -> u64 {
    const ARCH_GET_FS: usize = 0x1003;
    let mut base = 0_u64;
    // SAFETY: the kernel writes one live word.
    let _ = unsafe { syscall!(Sysno::arch_prctl, ARCH_GET_FS, &raw mut base) };
    base
}

/// poll(2) of one file for at most `timeout_ms`; -1: without limit.
///
/// # Errors
/// `EINTR`, `ENOMEM`.
#[inline(always)]
pub(crate) fn poll(file: &mut pollfd, timeout_ms: i32) -> Result<usize, Errno> {
    // SAFETY: the kernel reads and writes one live pollfd.
    unsafe { syscall!(Sysno::poll, core::ptr::from_mut(file), 1, timeout_ms) }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn roads_to_the_base_agree_where_libc_keeps_it() {
        assert_eq!(thread_pointer(), segment_base());
    }
}
