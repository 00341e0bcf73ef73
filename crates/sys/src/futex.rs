//! Waiting on the engine's own futexes: no libc, no TLS.

use crate::clock::timespec;
use crate::linux::general::{FUTEX_WAIT_BITSET, FUTEX_WAIT_BITSET_PRIVATE, FUTEX_WAKE, FUTEX_WAKE_PRIVATE};
use core::sync::atomic::AtomicU32;
use syscalls::{Errno, Sysno, raw_syscall};

/// The kernel's count of waiters is signed: -1 would wake a single one.
const MOST: u32 = i32::MAX as u32;

/// Sleeps while `*word == expected`, at most until `deadline_ns` (`CLOCK_MONOTONIC`; `u64::MAX`:
/// without limit).
///
/// # Errors
/// `EAGAIN` the word differs, `ETIMEDOUT`, `EINTR` a signal handler ran: also one with
/// `SA_RESTART`, since a wait with a time-out is never restarted.
pub fn futex_wait(word: &AtomicU32, expected: u32, deadline_ns: u64) -> Result<(), Errno> {
    let ts = timespec(deadline_ns);
    // SAFETY: the kernel reads 4 bytes of a live atomic and a live timespec.
    let r = unsafe { raw_syscall!(Sysno::futex, word.as_ptr(), FUTEX_WAIT_BITSET_PRIVATE, expected, &raw const ts, 0, u32::MAX) };
    Errno::from_ret(r).map(drop)
}

/// Unblocks up to `n` waiters of `word`.
pub fn futex_wake(word: &AtomicU32, n: u32) {
    let n = n.min(MOST);
    // SAFETY: the kernel uses the address as a key only.
    unsafe { raw_syscall!(Sysno::futex, word.as_ptr(), FUTEX_WAKE_PRIVATE, n) };
}

/// As [`futex_wait`], on a word that processes share, by its address. The word may be unmapped:
/// then `EFAULT`.
///
/// # Errors
/// Those of [`futex_wait`], and `EFAULT`.
pub(crate) fn shared_wait(addr: usize, expected: u32, deadline_ns: u64) -> Result<(), Errno> {
    let ts = timespec(deadline_ns);
    // SAFETY: the kernel checks the address, and answers EFAULT if nothing is mapped there; it
    // reads a live timespec.
    let r = unsafe { raw_syscall!(Sysno::futex, addr, FUTEX_WAIT_BITSET, expected, &raw const ts, 0, u32::MAX) };
    Errno::from_ret(r).map(drop)
}

/// As [`futex_wake`], across processes.
pub(crate) fn shared_wake(addr: usize, n: u32) {
    let n = n.min(MOST);
    // SAFETY: the kernel uses the address as a key only.
    unsafe { raw_syscall!(Sysno::futex, addr, FUTEX_WAKE, n) };
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use super::*;
    use std::sync::Arc;
    use std::vec::Vec;

    /// Whether a thread of this process sleeps.
    fn sleeps(tid: u32) -> bool {
        let stat = std::fs::read_to_string(std::format!("/proc/self/task/{tid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
    }

    #[test]
    fn one_wake_reaches_all_waiters() {
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
