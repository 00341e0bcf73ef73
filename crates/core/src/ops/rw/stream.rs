//! Transfers on files without positions: tried without waiting, then by readiness.

use super::checks::{RWF_CONTRADICTION, RWF_NOSIGNAL, RWF_OF_FILES};
use super::{POLLERR, POLLIN, POLLOUT, Rw, refuses_nowait};
use crate::file::FileKind;
use crate::ops::iovecs;
use crate::ops::issue::{Issue, IssueCx, OpFamily};
use crate::ops::outcome::Outcome;
use uringlet_abi::{setup, sqe};
use uringlet_sys::io::{self, RWF_NOWAIT};
use uringlet_sys::{Errno, UserPtr};

/// Consecutive tries of a worker that find nothing although poll says "ready".
const SPURIOUS: u32 = 1000;

/// A try has found nothing. Poll says when to try again; but of a datagram socket that was shut
/// down it says "ready" once, and only a call that may sleep finds the end: a worker makes it.
fn after_eagain(cx: &IssueCx<'_>, mask: u32) -> Issue {
    let is_ready = cx.poll_fired && io::poll_now(cx.file.fd, mask).is_ok_and(|events| events != 0);
    if is_ready { Issue::Blocks } else { Issue::WouldBlock(mask) }
}

impl Rw {
    /// A plain transfer on a file that was a socket when its kind was cached: the call itself fails
    /// if it is none any more. `None`: nothing was tried.
    #[inline]
    pub(super) fn try_known_socket(&mut self, cx: &mut IssueCx<'_>) -> Option<Issue> {
        let fd = cx.file.fd;
        if !self.is_plain() || cx.ring.setup & setup::IOPOLL != 0 || !FileKind::cached(fd).is_socket() {
            return None;
        }
        if self.is_write {
            return self.answer_of_socket(cx, POLLOUT);
        }
        if self.len > 0 && !cx.poll_fired && cx.ring.is_behind_others(fd) {
            return Some(Issue::PollFirst(POLLIN));
        }
        if self.len > 0 && !cx.poll_fired && cx.ring.known_empty(fd) {
            return Some(Issue::WouldBlock(POLLIN));
        }
        self.answer_of_socket(cx, POLLIN)
    }

    /// Whether it uses nothing of the ring, no flag and no position.
    pub(super) fn is_plain(&self) -> bool {
        matches!(self.off, -1 | 0) && self.rw_flags == 0 && !self.is_fixed && !self.selects
    }

    fn answer_of_socket(&mut self, cx: &mut IssueCx<'_>, mask: u32) -> Option<Issue> {
        let fd = cx.file.fd;
        match self.socket_transfer(fd, cx.sqe_flags) {
            Err(Errno::EAGAIN) => Some(after_eagain(cx, mask)),
            Err(Errno::ENOTSOCK | Errno::EBADF) => {
                FileKind::refresh(fd);
                None
            }
            Ok(n) if !self.is_write && n > 0 && cx.ring.short_read_drains(fd) => {
                // A receive that got less than it requested has emptied the stream.
                if n < self.wanted() {
                    cx.ring.note_empty(fd);
                }
                Some(self.finish_transfer(Ok(n)))
            }
            other => Some(self.finish_transfer(other)),
        }
    }

    /// Tries a transfer on a socket, pipe, terminal or eventfd: these have readiness and no
    /// positions.
    pub(super) fn try_stream(&mut self, cx: &mut IssueCx<'_>, kind: FileKind) -> Issue {
        let fd = cx.file.fd;
        let mask = if self.is_write { POLLOUT } else { POLLIN };
        // The cached kind may be stale, and a position must not be ignored on a file that has them.
        if !cx.file.is_fixed {
            let now = FileKind::refresh(fd);
            if now.is_bad() {
                return Errno::EBADF.into();
            }
            if now.is_seekable() {
                return self.try_seekable(cx, now);
            }
        }
        if self.rw_flags & RWF_OF_FILES != 0 {
            return self.refused_flags(fd, Errno::EOPNOTSUPP).into();
        }
        if let Err(errno) = self.drop_position(kind) {
            return errno.into();
        }
        let res = if self.must_not_raise_sigpipe(cx, kind) && io::poll_now(fd, mask).is_ok_and(|events| events & POLLERR != 0) {
            Err(Errno::EPIPE)
        } else if kind.is_socket() && self.rw_flags & RWF_CONTRADICTION != RWF_CONTRADICTION {
            // Not pwritev2(2): it does not look at a socket that it has no bytes for.
            self.socket_transfer(fd, cx.sqe_flags)
        } else if kind.supports_nowait(self.io_direction()) {
            self.transfer(fd, self.rw_flags | RWF_NOWAIT)
        } else {
            Err(Errno::EOPNOTSUPP)
        };
        match res {
            Err(Errno::EAGAIN) => after_eagain(cx, mask),
            Err(errno) if refuses_nowait(errno) => {
                kind.note_nowait_unsupported(fd, self.io_direction());
                match io::poll_now(fd, mask) {
                    Ok(0) => Issue::WouldBlock(mask),
                    _ => Issue::Blocks,
                }
            }
            other => self.finish_transfer(other),
        }
    }

    /// A stream has no positions: most are ignored.
    pub(super) fn drop_position(&mut self, kind: FileKind) -> Result<(), Errno> {
        match self.off {
            ..-1 => return Err(self.refused(Errno::EINVAL)),
            1.. if kind.is_socket() => return Err(self.refused(Errno::ESPIPE)),
            _ => self.off = -1,
        }
        Ok(())
    }

    /// A stream that its program made non-blocking: sleeps until it is ready.
    /// `EAGAIN` if it keeps being ready and the transfer keeps finding nothing.
    #[cold]
    pub(super) fn run_polled(&mut self, fd: i32) -> Outcome {
        let mask = if self.is_write { POLLOUT } else { POLLIN };
        for _ in 0..SPURIOUS {
            if let Err(errno) = io::poll_wait(fd, mask) {
                return self.outcome(Err(errno));
            }
            match self.transfer(fd, self.rw_flags) {
                Err(Errno::EAGAIN) => {}
                other => return self.outcome(other),
            }
        }
        self.outcome(Err(Errno::EAGAIN))
    }

    fn socket_transfer(&mut self, fd: i32, sqe_flags: u8) -> Result<usize, Errno> {
        match self.socket_call(fd, sqe_flags) {
            Err(errno) if !matches!(errno, Errno::ENOTSOCK | Errno::EBADF) && self.reads_into_nothing() => Ok(0),
            res => res,
        }
    }

    /// A read into iovecs without a byte: unlike recvmsg(2) it does not look at its socket.
    fn reads_into_nothing(&mut self) -> bool {
        let imported = !self.is_write && self.is_vectored && self.import_args().is_ok();
        imported && self.iovecs.as_deref().is_some_and(|v| iovecs::bytes(v) == 0)
    }

    fn socket_call(&self, fd: i32, sqe_flags: u8) -> Result<usize, Errno> {
        // A worker of the kernel discards SIGPIPE; a submitter that writes by itself gets it.
        let is_quiet = sqe_flags & sqe::ASYNC != 0 || self.rw_flags & RWF_NOSIGNAL != 0;
        let quiet = if is_quiet { io::MSG_NOSIGNAL } else { 0 };
        // read(2) of no bytes does not wait; recv(2) would.
        if !self.is_write && self.len == 0 {
            return Ok(0);
        }
        if self.is_vectored {
            // The program may have reused its iovecs by now.
            let (iov, iovlen) =
                self.iovecs.as_deref().map_or((self.addr, self.len as usize), |v| (io::ptr_of_slice(v).addr() as u64, v.len()));
            let msg = io::Msghdr { iov, iovlen: iovlen as u64, ..io::Msghdr::default() };
            let msg = io::ptr_of(&msg);
            return if self.is_write { io::sendmsg(fd, msg, io::MSG_DONTWAIT | quiet) } else { io::recvmsg(fd, msg, io::MSG_DONTWAIT) };
        }
        let (buf, len) = (UserPtr::at(self.addr), self.len as usize);
        if self.is_write {
            io::sendto(fd, buf, len, io::MSG_DONTWAIT | quiet, UserPtr::NULL, 0)
        } else {
            io::recvfrom(fd, buf, len, io::MSG_DONTWAIT, UserPtr::NULL, UserPtr::NULL)
        }
    }
}
