//! Clocks, and how a thread's time went: cheap enough to be asked at each write.

#[cfg(not(loom))]
use crate::arch;
use crate::linux::general::__kernel_timespec;
#[cfg(not(loom))]
use crate::linux::general::{RUSAGE_THREAD, rusage};
#[cfg(not(loom))]
use core::mem::MaybeUninit;
#[cfg(not(loom))]
use syscalls::{Sysno, raw_syscall};

/// Nanoseconds of a second.
pub const SECOND_NS: u64 = 1_000_000_000;

/// A time as system calls take it. Times beyond 292 years become that.
#[inline]
#[must_use]
pub const fn timespec(ns: u64) -> __kernel_timespec {
    let ns = if ns > i64::MAX as u64 { i64::MAX as u64 } else { ns };
    __kernel_timespec { tv_sec: (ns / SECOND_NS).cast_signed(), tv_nsec: (ns % SECOND_NS).cast_signed() }
}

/// A moment, in ticks of a counter that runs at the same rate on every CPU. Reading it makes no
/// system call.
///
/// See `arch::ticks` for its rate and cost. In a model: nanoseconds.
#[inline(always)]
#[must_use]
pub fn ticks() -> u64 {
    #[cfg(not(loom))]
    let now = arch::ticks();
    #[cfg(loom)]
    let now = crate::model::monotonic_ns();
    now
}

/// Voluntary context switches of this thread: it waited for a disk or a lock, and did not merely
/// lose the CPU to another thread. The call takes about 0.4 µs.
///
/// Source: getrusage(2), `ru_nvcsw` of `RUSAGE_THREAD`.
#[cfg(not(loom))]
#[must_use]
pub fn voluntary_switches() -> u64 {
    let mut usage = MaybeUninit::<rusage>::zeroed();
    // SAFETY: the kernel writes a `struct rusage`, of integers only, to memory of its size that is
    // zero before.
    let usage = unsafe {
        raw_syscall!(Sysno::getrusage, RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    usage.ru_nvcsw.cast_unsigned()
}

/// In a model no write sleeps.
#[cfg(loom)]
#[must_use]
pub fn voluntary_switches() -> u64 {
    0
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn ticks_advance_and_a_sleep_counts_as_a_switch() {
        let (before, switches_before) = (ticks(), voluntary_switches());
        crate::process::sleep_ns(2_000_000);
        assert!(ticks() - before > 1_000_000);
        assert!(voluntary_switches() > switches_before);
    }

    #[test]
    fn timespec_splits_seconds_and_nanoseconds() {
        let ts = timespec(3 * SECOND_NS + 7);
        assert_eq!((ts.tv_sec, ts.tv_nsec), (3, 7));
        assert_eq!(timespec(u64::MAX).tv_sec, i64::MAX / 1_000_000_000);
    }
}
