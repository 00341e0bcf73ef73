//! `IORING_OP_WAITID`: waits for a change of a child's state.
//! Source:  io_uring_prep_waitid(3), waitid(2); behaviour of Linux 6.18 io_uring/waitid.c (not its
//!          code).
//! Issue:   tried without sleeping; then poll waits for the exit of one process, and a worker of
//!          the unbounded class for everything else (submit/wait.rs). Units: options are
//!          waitid(2)'s, in file_index; addr2 is the siginfo_t, or null.
//! Errors:  EINVAL bad fields, which, id or options; EBADF no pidfd; ECHILD; EFAULT the child is
//!          reaped, but the siginfo_t cannot be written.
//! Differs: __WNOTHREAD is EINVAL unless the result is there at once, since other threads wait for
//!          the submitter. A cancelled wait leaves the siginfo_t alone, where the kernel clears it.
//! Tests:   ours cli/tests/net_ops.rs (waitid_ops).

use super::issue::{OpFamily, PrepCx, unused};
use super::outcome::Outcome;
use uringlet_abi::Sqe;
use uringlet_sys::fd::EngineFd;
use uringlet_sys::process::{self, Siginfo};
use uringlet_sys::{Errno, UserPtr, io, user};

const P_PID: u32 = 1;
const P_PIDFD: u32 = 3;
const WNOHANG: u32 = 1;
const WSTOPPED: u32 = 2;
const WCONTINUED: u32 = 8;
const WNOWAIT: u32 = 0x0100_0000;
const WNOTHREAD: u32 = 0x2000_0000;

/// A validated request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waitid {
    which: u32,
    id: i32,
    options: u32,
    info: UserPtr,
}

pub(crate) fn prep(sqe: &Sqe, _: &PrepCx) -> Result<Waitid, Errno> {
    unused(&[sqe.addr, sqe.buf_index.into(), sqe.addr3, sqe.op_flags.into()])?;
    Ok(Waitid { which: sqe.len, id: sqe.fd, options: sqe.file_index(), info: UserPtr::at(sqe.addr2()) })
}

impl OpFamily for Waitid {
    /// Called if no worker could be started: then no thread can sleep for it.
    fn run(&mut self, _: i32) -> Outcome {
        Outcome::err(Errno::EAGAIN)
    }
}

impl Waitid {
    /// Tries without sleeping, and reaps. `None`: it has to wait. `pidfd` is the process to wait
    /// for, unless negative.
    pub(crate) fn try_wait(&self, pidfd: i32) -> Option<Outcome> {
        let mut info = Siginfo::default();
        let (which, id) = self.target(pidfd);
        match process::waitid(which, id, self.options | WNOHANG, &mut info) {
            Ok(()) if info.is_none() && !self.is_nonblocking() => None,
            Ok(()) => Some(self.write_siginfo(&info).map(|()| 0).into()),
            Err(Errno::ECHILD) => Some(Outcome::err(self.write_siginfo(&info).err().unwrap_or(Errno::ECHILD))),
            Err(errno) => Some(Outcome::err(errno)),
        }
    }

    /// Sleeps until there is something to reap, or nothing to wait for; reaps nothing.
    pub(crate) fn sleep(&self, pidfd: i32) {
        let (which, id) = self.target(pidfd);
        // The result is ignored: a new try follows.
        let _ = process::waitid(which, id, self.options | WNOWAIT, &mut Siginfo::default());
    }

    /// A descriptor of the engine's that identifies the process to wait for, whatever becomes of
    /// its number.
    pub(crate) fn open_pidfd(&self) -> Option<EngineFd> {
        match self.which {
            P_PID => EngineFd::pidfd(self.id).ok(),
            P_PIDFD => EngineFd::dup_of(self.id).ok(),
            _ => None,
        }
    }

    /// Whether a pidfd becomes readable when there may be a result: it reports only the exit.
    pub(crate) fn is_pollable(&self) -> bool {
        self.options & (WSTOPPED | WCONTINUED) == 0
    }

    /// Whether the result depends on the calling thread: another one would wait for other children.
    pub(crate) fn is_bound_to_its_thread(&self) -> bool {
        self.options & WNOTHREAD != 0
    }

    fn target(&self, pidfd: i32) -> (u32, i32) {
        if pidfd >= 0 { (P_PIDFD, pidfd) } else { (self.which, self.id) }
    }

    /// Whether "not yet" is a result.
    fn is_nonblocking(&self) -> bool {
        self.options & WNOHANG != 0 || self.which == P_PIDFD && io::file_flags(self.id).is_ok_and(|flags| flags & io::O_NONBLOCK != 0)
    }

    /// Writes the program's siginfo_t, except for two words that waitid(2) leaves alone.
    fn write_siginfo(&self, info: &Siginfo) -> Result<(), Errno> {
        if self.info.is_null() {
            return Ok(());
        }
        let (head, child) = info.parts();
        user::write_slice(self.info, head)?;
        user::write_slice(self.info.add(Siginfo::CHILD), child)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CX: PrepCx = PrepCx { setup: 0, sqe_flags: 0, is_after_link: false, is_wide: false };

    #[test]
    fn waitid_checks_its_fields() {
        let good = Sqe { fd: 5, len: 1, off: 7, splice_fd_in: 4, pad2: 1, ..Sqe::default() };
        assert!(matches!(prep(&good, &CX), Ok(Waitid { which: 1, id: 5, options: 4, .. })));
        for bad in [Sqe { addr: 1, ..good }, Sqe { buf_index: 1, ..good }, Sqe { addr3: 1, ..good }, Sqe { op_flags: 1, ..good }] {
            assert_eq!(prep(&bad, &CX).err(), Some(Errno::EINVAL));
        }
    }

    #[test]
    fn waitid_without_a_child_does_not_wait() {
        let nobody = Waitid { which: P_PID, id: 1, options: 4, info: UserPtr::NULL };
        assert_eq!(nobody.try_wait(-1), Some(Outcome::err(Errno::ECHILD)));
        assert_eq!(Waitid { which: 9, ..nobody }.try_wait(-1), Some(Outcome::err(Errno::EINVAL)));
        assert_eq!(Waitid { info: UserPtr::at(u64::MAX), ..nobody }.try_wait(-1), Some(Outcome::err(Errno::EFAULT)));
    }
}
