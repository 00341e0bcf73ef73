//! How long a piece of work took, and whether its thread slept: cheap enough to be asked at each write.

#[cfg(not(loom))]
use syscalls::{Sysno, raw_syscall};

/// A moment, in ticks of a counter that runs at the same pace on every CPU: the time stamp counter where there is one
/// (1 to 5 ticks a nanosecond; reading it costs 10 ns and no system call), nanoseconds elsewhere.
#[inline(always)]
#[must_use]
pub fn ticks() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    // SAFETY: reads a counter.
    let now = unsafe { core::arch::x86_64::_rdtsc() };
    #[cfg(any(not(target_arch = "x86_64"), loom))]
    let now = crate::process::monotonic_ns();
    now
}

/// How often this thread has gone to sleep by its own doing: it waited for a disk or a lock, and did not merely lose the
/// CPU to another thread. About 0.4 µs.
///
/// Source: getrusage(2), `ru_nvcsw` of `RUSAGE_THREAD`.
#[cfg(not(loom))]
#[must_use]
pub fn voluntary_switches() -> u64 {
    const RUSAGE_THREAD: usize = 1;
    let mut usage = [0_u64; 18];
    // SAFETY: the kernel writes the 144 bytes of a struct rusage.
    unsafe { raw_syscall!(Sysno::getrusage, RUSAGE_THREAD, usage.as_mut_ptr()) };
    usage[16]
}

/// In a model nobody sleeps in a write.
#[cfg(loom)]
#[must_use]
pub fn voluntary_switches() -> u64 {
    0
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn ticks_go_on_and_sleeps_are_counted() {
        let (before, slept_before) = (ticks(), voluntary_switches());
        crate::process::sleep_ns(2_000_000);
        assert!(ticks() - before > 1_000_000);
        assert!(voluntary_switches() > slept_before);
    }
}
