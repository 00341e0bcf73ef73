//! The system calls that a ring cannot do without: asked for before each ring is made.
//!
//! A filter (seccomp) may deny any call. Where a call is denied for which there is no other road,
//! there is no ring, and the program is told which call it is. `docs/system-calls.md` lists these
//! calls and all others that the engine makes. Each call here is made with arguments that the
//! kernel refuses, so it has no effect: 12 calls, 2.7 µs.

use crate::linux::general::{EPOLL_CTL_DEL, F_GETFL, FUTEX_WAKE_PRIVATE};
use crate::passthrough::write_stderr;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;
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

/// Whether a call is denied to this thread.
fn is_denied(&Probe(nr, [a1, a2, a3, a4]): &Probe) -> bool {
    // SAFETY: the addresses are null, the descriptors and flags invalid: the kernel writes nothing.
    let result = unsafe { raw::syscall6(nr as usize, a1, a2, a3, a4, 0, 0) };
    Errno::from_ret(result).is_err_and(is_denial)
}

/// Whether mremap(2) is denied.
#[cfg(any(test, not(loom)))]
pub(crate) fn is_mremap_denied() -> bool {
    is_denied(&Probe(Sysno::mremap, [0, 0, 0, BAD_FLAGS]))
}

/// Checks that a ring can work.
///
/// # Errors
/// `EPERM` a required call is denied; standard error has its name, once a process.
pub fn check() -> Result<(), Errno> {
    let Some(denied) = REQUIRED.iter().find(|alternatives| alternatives.iter().all(is_denied)) else { return Ok(()) };
    report(denied[0].0.name());
    Err(Errno::EPERM)
}

fn report(name: &str) {
    static IS_TOLD: AtomicBool = AtomicBool::new(false);
    if IS_TOLD.swap(true, Relaxed) {
        return;
    }
    let mut line = [0_u8; 128];
    let mut len = 0;
    for part in ["uringlet: no ring can be made: the system call ", name, " is denied (docs/system-calls.md)\n"] {
        line[len..len + part.len()].copy_from_slice(part.as_bytes());
        len += part.len();
    }
    write_stderr(&line[..len]);
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
