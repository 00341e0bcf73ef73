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

/// The kernel's count is signed: -1 would wake a single one.
const MOST: u32 = i32::MAX as u32;

/// Wakes up to `n` sleepers on `word`.
pub fn futex_wake(word: &AtomicU32, n: u32) {
    let n = n.min(MOST);
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
    let n = n.min(MOST);
    // SAFETY: the kernel uses the address as a key only.
    unsafe { raw_syscall!(Sysno::futex, at, FUTEX_WAKE, n) };
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use super::*;
    use std::sync::Arc;
    use std::vec::Vec;

    /// Whether a thread of ours sleeps.
    fn sleeps(tid: u32) -> bool {
        let stat = std::fs::read_to_string(std::format!("/proc/self/task/{tid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
    }

    #[test]
    fn all_there_are_can_be_woken_at_once() {
        let word = Arc::new(AtomicU32::new(0));
        let (sender, tids) = std::sync::mpsc::channel();
        let sleepers: Vec<_> = (0..4)
            .map(|_| {
                let (word, sender) = (Arc::clone(&word), sender.clone());
                std::thread::spawn(move || {
                    sender.send(crate::process::tid()).unwrap();
                    futex_wait(&word, 0, u64::MAX)
                })
            })
            .collect();
        for tid in tids.iter().take(4) {
            while !sleeps(tid) {
                std::thread::yield_now();
            }
        }
        futex_wake(&word, u32::MAX);
        for sleeper in sleepers {
            assert_eq!(sleeper.join().unwrap(), Ok(()));
        }
    }
}
