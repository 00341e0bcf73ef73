//! `IORING_OP_ACCEPT`, single and multishot.

use super::attempt::{TryCtx, blocking_call, poll_any_first};
use super::nonblock::{accept_with_nonblock, with_nonblock};
use super::socket::{AF_UNIX, POLLIN, SOCK_CLOEXEC, SOCK_NONBLOCK, invalidate_file_kind};
use crate::ops::fs::install_file;
use crate::ops::issue::{Issue, IssueCx, PrepCx, unused};
use crate::ops::outcome::Outcome;
use crate::ring_resources::RingResources;
use uringlet_abi::op_flags::{ACCEPT_DONTWAIT, ACCEPT_MULTISHOT, ACCEPT_POLL_FIRST};
use uringlet_abi::{FILE_INDEX_ALLOC, Sqe, cqe};
use uringlet_sys::io::{self, Res};
use uringlet_sys::{Errno, UserPtr};

/// A request to accept connections.
#[derive(Debug)]
pub(crate) struct Accept {
    /// Where the program wants the peer's address, and the address's size; null for nowhere.
    addr: u64,
    addrlen: u64,
    /// `SOCK_*`.
    flags: u32,
    /// `IORING_ACCEPT_*`.
    accept_flags: u16,
    file_index: u32,
    /// Multishot: the last accept took the only connection, so the next one waits without a try.
    wait_first: bool,
}

pub(crate) fn prep(sqe: &Sqe, _: &PrepCx) -> Result<Accept, Errno> {
    unused(&[sqe.len.into(), sqe.buf_index.into()])?;
    if sqe.ioprio & !(ACCEPT_MULTISHOT | ACCEPT_DONTWAIT | ACCEPT_POLL_FIRST) != 0 {
        return Err(Errno::EINVAL);
    }
    let file_index = sqe.file_index();
    let is_multishot = sqe.ioprio & ACCEPT_MULTISHOT != 0;
    if file_index != 0 && (sqe.op_flags & SOCK_CLOEXEC != 0 || (is_multishot && file_index != FILE_INDEX_ALLOC)) {
        return Err(Errno::EINVAL);
    }
    if sqe.op_flags & !(SOCK_CLOEXEC | SOCK_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    Ok(Accept { addr: sqe.addr, addrlen: sqe.addr2(), flags: sqe.op_flags, accept_flags: sqe.ioprio, file_index, wait_first: false })
}

impl Accept {
    pub(super) fn is_multishot(&self) -> bool {
        self.accept_flags & ACCEPT_MULTISHOT != 0
    }

    fn may_wait(&self) -> bool {
        self.accept_flags & ACCEPT_DONTWAIT == 0
    }

    pub(super) fn try_issue(&mut self, cx: &mut IssueCx<'_>) -> Issue {
        let fd = cx.file.fd;
        if self.accept_flags & ACCEPT_POLL_FIRST != 0
            && let Some(issue) = poll_any_first(&TryCtx::of(cx), POLLIN, self.may_wait())
        {
            return issue;
        }
        if core::mem::take(&mut self.wait_first) {
            return Issue::WouldBlock(POLLIN);
        }
        match self.accept_now(fd) {
            // Poll may be ready: perhaps only another thread held the guard.
            Err(Errno::EAGAIN) if self.may_wait() => Issue::PollFirst(POLLIN),
            Err(errno) => errno.into(),
            Ok(new) => self.answer(cx, new as i32),
        }
    }

    fn answer(&mut self, cx: &mut IssueCx<'_>, new: i32) -> Issue {
        let outcome = self.finish(cx.ring, Outcome::ok(new));
        let fd = cx.file.fd;
        let has_more = io::poll_now(fd, POLLIN).is_ok_and(|events| events & POLLIN != 0);
        // Linux does not report this for Unix sockets.
        let says_more = has_more && io::socket_option(fd, io::SO_DOMAIN).is_ok_and(|domain| domain != AF_UNIX);
        let outcome = if says_more { outcome.with_flags(cqe::SOCK_NONEMPTY) } else { outcome };
        if !self.is_multishot() || outcome.is_failure {
            return Issue::Complete(outcome);
        }
        self.wait_first = !has_more && self.may_wait();
        Issue::More(outcome)
    }

    /// Never sleeps: neither because there is no connection, nor because another thread takes the
    /// connection that poll reported.
    fn accept_now(&self, fd: i32) -> Res {
        if io::socket_option(fd, io::SO_ACCEPTCONN)? == 0 {
            // Not a listener: accept4 returns the error.
            return with_nonblock(fd, || self.accept(fd));
        }
        if io::poll_now(fd, POLLIN)? == 0 {
            return Err(Errno::EAGAIN);
        }
        accept_with_nonblock(fd, || self.accept(fd))
    }

    fn accept(&self, fd: i32) -> Res {
        // A socket that becomes a registered file must not leak into a child while it has a number.
        let flags = if self.file_index == 0 { self.flags } else { self.flags | SOCK_CLOEXEC };
        io::accept4(fd, UserPtr::at(self.addr), UserPtr::at(self.addrlen), flags)
    }

    /// Accepts one connection, waiting for it.
    pub(super) fn run(&mut self, fd: i32) -> Outcome {
        blocking_call(fd, POLLIN, self.may_wait(), || self.accept(fd)).into()
    }

    pub(super) fn finish(&mut self, ring: &mut RingResources, outcome: Outcome) -> Outcome {
        if outcome.res < 0 {
            return outcome;
        }
        if self.file_index != 0 {
            return install_file(ring, outcome.res, self.file_index).into();
        }
        invalidate_file_kind(outcome.res);
        ring.note_new_file(outcome.res);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_flags_and_fields_are_checked() {
        let cx = PrepCx { setup: 0, sqe_flags: 0, is_after_link: false, is_wide: false };
        let multishot = Sqe { ioprio: ACCEPT_MULTISHOT, ..Sqe::default() };
        for good in [
            Sqe { ioprio: 7, op_flags: SOCK_CLOEXEC | SOCK_NONBLOCK, ..Sqe::default() },
            Sqe { splice_fd_in: -1, ..multishot },
            Sqe { splice_fd_in: 5, op_flags: SOCK_NONBLOCK, ..Sqe::default() },
        ] {
            assert!(prep(&good, &cx).is_ok(), "{good:?}");
        }
        for bad in [
            Sqe { len: 1, ..Sqe::default() },
            Sqe { buf_index: 1, ..Sqe::default() },
            Sqe { ioprio: 8, ..Sqe::default() },
            Sqe { op_flags: 1, ..Sqe::default() },
            Sqe { splice_fd_in: 5, ..multishot },
            Sqe { splice_fd_in: 5, op_flags: SOCK_CLOEXEC, ..Sqe::default() },
        ] {
            assert_eq!(prep(&bad, &cx).err(), Some(Errno::EINVAL), "{bad:?}");
        }
    }
}
