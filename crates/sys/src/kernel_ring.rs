//! Whether the kernel's io_uring works for this process: a ring is made and closed again.
//!
//! A seccomp filter may kill for the calls, and without a filter nothing can. So a process without
//! a filter asks directly, and one with a filter asks in a copy of itself, whose end tells the
//! answer.

use crate::linux::prctl::{PR_GET_SECCOMP, PR_SET_DUMPABLE};
use crate::signal::block;
use crate::spawn::{CopyEnd, in_copy};
use syscalls::{Errno, Sysno, syscall};
use uringlet_abi::{UringParams, register};

/// Where a ring is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskIn {
    /// In this process, if no filter can kill it. Its lowest free descriptor is used for a moment,
    /// so there must be no other thread.
    ThisProcess,
    /// In a copy of this process.
    Copy,
}

/// Whether a ring can be made, entered and registered with. Where that cannot be found out it does
/// not work.
#[must_use]
pub fn works(place: AskIn) -> bool {
    if place == AskIn::ThisProcess && !has_filter() {
        return make_and_close();
    }
    let ask = || {
        prepare_copy();
        i32::from(!make_and_close())
    };
    in_copy(ask) == Ok(CopyEnd::Exit(0))
}

/// Whether system calls of this thread are filtered. A kernel without seccomp answers `EINVAL`.
fn has_filter() -> bool {
    // SAFETY: no addresses.
    !matches!(unsafe { syscall!(Sysno::prctl, PR_GET_SECCOMP, 0, 0, 0, 0) }, Ok(0) | Err(Errno::EINVAL))
}

/// No handler of the program runs in the copy, and its end leaves no core file.
fn prepare_copy() {
    block(u64::MAX);
    // SAFETY: no addresses.
    let _ = unsafe { syscall!(Sysno::prctl, PR_SET_DUMPABLE, 0, 0, 0, 0) };
}

fn make_and_close() -> bool {
    let mut params = UringParams::default();
    // SAFETY: the kernel reads and writes live parameters. The descriptor is closed by the code
    // that has made it, and the other calls have no addresses.
    unsafe {
        let Ok(ring) = syscall!(Sysno::io_uring_setup, 1, &raw mut params) else { return false };
        let entered = syscall!(Sysno::io_uring_enter, ring, 0, 0, 0, 0, 0);
        // Changes nothing: there is no eventfd.
        let registered = syscall!(Sysno::io_uring_register, ring, register::UNREGISTER_EVENTFD, 0, 0);
        let _ = syscall!(Sysno::close, ring);
        entered.is_ok() && !matches!(registered, Err(Errno::EPERM | Errno::EACCES | Errno::ENOSYS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_places_give_the_same_answer() {
        assert_eq!(works(AskIn::ThisProcess), works(AskIn::Copy));
    }
}
