//! The system calls that a ring cannot do without: asked for before each ring is made.
//!
//! A filter (seccomp) may deny any call. Where a call is denied for which there is no other road,
//! there is no ring, and the program is told which call it is. `docs/system-calls.md` lists these
//! calls and all others that the engine makes. Each call here is made with arguments that the
//! kernel refuses, so it has no effect: 12 calls, 2.7 µs.

use crate::linux::general::{EPOLL_CTL_DEL, F_GETFL, FUTEX_WAKE_PRIVATE};
use crate::refusal;
use crate::valgrind::ErrorsOff;
use syscalls::{Errno, Sysno, raw};

/// A call, with arguments that change nothing.
#[derive(Clone, Copy, Debug)]
struct Probe(Sysno, [usize; 4]);

const BAD_FLAGS: usize = u32::MAX as usize;
const BAD_FD: usize = usize::MAX;

/// One of each line must be allowed.
const REQUIRED: [&[Probe]; 12] = [
    &[Probe(Sysno::getpid, [0; 4])],
    &[Probe(Sysno::clock_gettime, [0; 4])],
    &[Probe(Sysno::futex, [0, FUTEX_WAKE_PRIVATE as usize, 0, 0])],
    &[Probe(Sysno::fcntl, [BAD_FD, F_GETFL as usize, 0, 0])],
    &[Probe(Sysno::fstat, [BAD_FD, 0, 0, 0]), Probe(Sysno::newfstatat, [BAD_FD, 0, 0, BAD_FLAGS])],
    &[Probe(Sysno::poll, [0, 1, 0, 0]), Probe(Sysno::ppoll, [0, 1, 0, 0])],
    &[Probe(Sysno::pipe2, [0, BAD_FLAGS, 0, 0]), Probe(Sysno::pipe, [0; 4])],
    &[Probe(Sysno::mremap, [0, 0, 0, BAD_FLAGS]), Probe(Sysno::memfd_create, [0, BAD_FLAGS, 0, 0])],
    &[Probe(Sysno::epoll_create1, [BAD_FLAGS, 0, 0, 0])],
    &[Probe(Sysno::epoll_ctl, [BAD_FD, EPOLL_CTL_DEL as usize, BAD_FD, 0])],
    &[Probe(Sysno::epoll_pwait, [BAD_FD, 0, 1, 0])],
    &[Probe(Sysno::eventfd2, [0, BAD_FLAGS, 0, 0])],
];

/// Whether an error is one with which filters and old kernels refuse a call itself.
#[must_use]
pub const fn is_denial(errno: Errno) -> bool {
    matches!(errno, Errno::EPERM | Errno::ENOSYS | Errno::EACCES)
}

/// What the call answers to this thread.
fn answer(&Probe(nr, [a1, a2, a3, a4]): &Probe) -> Result<usize, Errno> {
    // SAFETY: the addresses are null or the kernel's, the descriptors and flags invalid: the kernel
    // writes nothing.
    Errno::from_ret(unsafe { raw::syscall6(nr as usize, a1, a2, a3, a4, 0, 0) })
}

/// Whether a call is denied to this thread.
fn is_denied(probe: &Probe) -> bool {
    answer(probe).is_err_and(is_denial)
}

/// Whether mremap(2) makes no second mapping of the same pages: a filter denies it, or valgrind
/// answers, which takes an old size of 0 for an error. The kernel says that nothing is mapped
/// there.
#[cfg(any(test, not(loom)))]
pub(crate) fn is_mremap_denied() -> bool {
    use crate::arch::PAGE_SIZE;
    use crate::linux::general::MREMAP_MAYMOVE;
    const NEVER_MAPPED: usize = PAGE_SIZE.wrapping_neg();
    answer(&Probe(Sysno::mremap, [NEVER_MAPPED, 0, PAGE_SIZE, MREMAP_MAYMOVE as usize])) != Err(Errno::EFAULT)
}

/// The name of a required call that is denied.
#[must_use]
pub fn denied() -> Option<&'static str> {
    let _bad_addresses = ErrorsOff::new();
    REQUIRED.iter().find(|alternatives| alternatives.iter().all(is_denied)).map(|alternatives| alternatives[0].0.name())
}

/// Checks that a ring can work.
///
/// # Errors
/// `EPERM` a required call is denied; standard error has its name, once a process.
pub fn check() -> Result<(), Errno> {
    let Some(name) = denied() else { return Ok(()) };
    refusal::tell(&["the system call ", name, " is denied (docs/system-calls.md)"]);
    Err(Errno::EPERM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_process_may_make_rings() {
        assert_eq!(check(), Ok(()));
        assert!(!is_mremap_denied());
    }

    #[test]
    fn only_some_errors_refuse_a_call() {
        assert!(is_denial(Errno::EPERM) && is_denial(Errno::ENOSYS));
        assert!(!is_denial(Errno::EBADF) && !is_denial(Errno::EFAULT));
    }

    #[test]
    fn every_probe_is_answered_by_the_call_itself() {
        for probe in REQUIRED.iter().copied().flatten() {
            assert!(!is_denied(probe), "{}", probe.0.name());
        }
    }
}
