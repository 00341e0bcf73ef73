//! x86-64. See [`arch`](super) for what each item is.

mod memory;
mod note;
mod thread;
mod user_copy;

pub(crate) use note::stats_note;
pub(crate) use thread::{noop_sigaction, start_thread, unmap_and_exit};
pub(crate) use user_copy::{copy_fixup, copy_user};

use crate::linux::general::pollfd;
use syscalls::{Errno, Sysno, syscall};

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

/// The self pointer in the first word of the thread control block.
///
/// glibc, musl, Zig and Go all keep a valid address in `%fs` (System V ABI, thread-local storage).
#[inline]
pub(crate) fn thread_pointer() -> u64 {
    let pointer: u64;
    // SAFETY: reads the first word of the thread control block.
    unsafe { core::arch::asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, readonly, preserves_flags)) };
    pointer
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
