//! Parking on futexes: no libc, no TLS.

use core::sync::atomic::AtomicU32;
use syscalls::{Errno, Sysno, raw_syscall};

const FUTEX_WAKE: u32 = 1;
const FUTEX_WAIT_BITSET: u32 = 9;
const FUTEX_PRIVATE: u32 = 128;
const FUTEX_WAKE_PRIVATE: u32 = FUTEX_WAKE | FUTEX_PRIVATE;
const FUTEX_WAIT_BITSET_PRIVATE: u32 = FUTEX_WAIT_BITSET | FUTEX_PRIVATE;

/// Sleeps while `*word == expected`, at most until `deadline_ns` (`CLOCK_MONOTONIC`; `u64::MAX` for ever).
///
/// # Errors
/// `EAGAIN` the word differs, `ETIMEDOUT`, `EINTR` a signal handler ran: also one with `SA_RESTART`, since a wait with a
/// timeout is never restarted.
pub fn futex_wait(word: &AtomicU32, expected: u32, deadline_ns: u64) -> Result<(), Errno> {
    let deadline_ns = deadline_ns.min(i64::MAX as u64);
    let ts = [(deadline_ns / 1_000_000_000) as i64, (deadline_ns % 1_000_000_000) as i64];
    // SAFETY: the kernel reads 4 bytes of a live atomic and 16 of `ts`.
    let r = unsafe { raw_syscall!(Sysno::futex, word.as_ptr(), FUTEX_WAIT_BITSET_PRIVATE, expected, ts.as_ptr(), 0, u32::MAX) };
    Errno::from_ret(r).map(drop)
}

/// Wakes up to `n` sleepers on `word`.
pub fn futex_wake(word: &AtomicU32, n: u32) {
    // SAFETY: the kernel uses the address as a key only.
    unsafe { raw_syscall!(Sysno::futex, word.as_ptr(), FUTEX_WAKE_PRIVATE, n) };
}

/// As [`futex_wait`] on the word at an address that other processes share, and that may be gone: then `EFAULT`.
///
/// # Errors
/// Those of [`futex_wait`], and `EFAULT`.
pub(crate) fn shared_wait(at: usize, expected: u32, deadline_ns: u64) -> Result<(), Errno> {
    let deadline_ns = deadline_ns.min(i64::MAX as u64);
    let ts = [(deadline_ns / 1_000_000_000) as i64, (deadline_ns % 1_000_000_000) as i64];
    // SAFETY: the kernel looks at the address, and answers EFAULT if nothing is mapped there; it reads 16 bytes of `ts`.
    let r = unsafe { raw_syscall!(Sysno::futex, at, FUTEX_WAIT_BITSET, expected, ts.as_ptr(), 0, u32::MAX) };
    Errno::from_ret(r).map(drop)
}

/// As [`futex_wake`], across processes.
pub(crate) fn shared_wake(at: usize, n: u32) {
    // SAFETY: the kernel uses the address as a key only.
    unsafe { raw_syscall!(Sysno::futex, at, FUTEX_WAKE, n) };
}
