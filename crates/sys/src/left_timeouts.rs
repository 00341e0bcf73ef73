//! TIMEOUT requests that a forked child leaves to the process that made a ring when it exits: in
//! the kernel they go on without it.
//!
//! They lie beside the ring's [`BiasedLock`](crate::biased_lock::BiasedLock), and are read and
//! written under that lock. The words are atomics because processes share them.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// How many can be left before the maker takes them.
const ROOM: usize = 64;

/// A time-out that goes on in another process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftTimeout {
    /// That of its CQE.
    pub user_data: u64,
    /// The absolute time, ns.
    pub at_ns: u64,
    /// `IORING_TIMEOUT_*`.
    pub flags: u32,
    /// `IOSQE_*`.
    pub sqe_flags: u8,
}

#[derive(Debug)]
struct LeftEntry {
    user_data: AtomicU64,
    at_ns: AtomicU64,
    flags: AtomicU32,
    sqe_flags: AtomicU32,
}

impl LeftEntry {
    const fn new() -> Self {
        Self { user_data: AtomicU64::new(0), at_ns: AtomicU64::new(0), flags: AtomicU32::new(0), sqe_flags: AtomicU32::new(0) }
    }
}

/// See the module. All zero: nothing was left.
#[derive(Debug)]
#[repr(C)]
pub struct LeftTimeouts {
    len: AtomicU32,
    entries: [LeftEntry; ROOM],
}

impl Default for LeftTimeouts {
    fn default() -> Self {
        Self { len: AtomicU32::new(0), entries: [const { LeftEntry::new() }; ROOM] }
    }
}

impl LeftTimeouts {
    /// Leaves a time-out. `false`: there is no room.
    #[must_use]
    pub fn push(&self, timeout: LeftTimeout) -> bool {
        let len = self.len.load(Relaxed);
        let Some(entry) = self.entries.get(len as usize) else { return false };
        entry.user_data.store(timeout.user_data, Relaxed);
        entry.at_ns.store(timeout.at_ns, Relaxed);
        entry.flags.store(timeout.flags, Relaxed);
        entry.sqe_flags.store(timeout.sqe_flags.into(), Relaxed);
        self.len.store(len + 1, Relaxed);
        true
    }

    /// Takes the one that was left last.
    #[must_use]
    pub fn pop(&self) -> Option<LeftTimeout> {
        let last = self.len.load(Relaxed).checked_sub(1)?;
        let entry = self.entries.get(last as usize)?;
        self.len.store(last, Relaxed);
        Some(LeftTimeout {
            user_data: entry.user_data.load(Relaxed),
            at_ns: entry.at_ns.load(Relaxed),
            flags: entry.flags.load(Relaxed),
            sqe_flags: entry.sqe_flags.load(Relaxed).to_le_bytes()[0],
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_time_out_that_was_left_is_taken_once() {
        let left = LeftTimeouts::default();
        let nth = |n: usize| LeftTimeout { user_data: n as u64, at_ns: 5, flags: 1, sqe_flags: 64 };
        assert!((0..ROOM).all(|n| left.push(nth(n))));
        assert!(!left.push(nth(ROOM)));
        assert!((0..ROOM).rev().all(|n| left.pop() == Some(nth(n))));
        assert_eq!(left.pop(), None);
    }
}
