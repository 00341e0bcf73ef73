//! `IORING_OP_READ_MULTISHOT, EPOLL_WAIT`: repeated reads and event waits on files that have
//! readiness and no positions.
//! Source:  io_uring_prep_read_multishot(3), io_uring_prep_epoll_wait(3); behaviour of Linux 6.18
//!          io_uring/rw.c, epoll.c (not their code).
//! Issue:   tried without sleeping, then poll and a new try. A multishot read of another file than
//!          a socket is tried only after poll fired.
//! Errors:  EINVAL bad fields, no epoll set; EBADFD a file without readiness; EBADF; ENOBUFS; else
//!          those of the system calls.
//! Differs: an I/O priority of a multishot read is refused; a multishot read lets others have their
//!          turn after 33 reads, the kernel's after it has emptied its file.
//! Tests:   ours cli/tests/net_ops.rs (more_ops).

use super::buffers::commit_or_recycle;
use super::issue::{Issue, IssueCx, OpFamily, PrepCx, unused};
use super::outcome::Outcome;
use super::rw::refuses_nowait;
use super::turn::Turn;
use crate::file::FileKind;
use crate::rsrc::buf_ring::SelectedBuf;
use uringlet_abi::register::Iovec;
use uringlet_abi::{Sqe, sqe};
use uringlet_sys::io::{self, MSG_DONTWAIT, RWF_NOWAIT, Res};
use uringlet_sys::{Errno, UserPtr};

const POLLIN: u32 = 1;

/// A validated request of this family.
#[derive(Debug)]
pub(crate) enum StreamOp {
    Read(MultishotRead),
    /// Copies at most `most` events of an epoll set to this address.
    EpollWait {
        events: UserPtr,
        most: u32,
    },
}

/// A multishot read.
#[derive(Debug)]
pub(crate) struct MultishotRead {
    rw_flags: u32,
    turn: Turn,
    selected: Option<SelectedBuf>,
}

pub(crate) fn prep_read(sqe: &Sqe, cx: &PrepCx) -> Result<StreamOp, Errno> {
    unused(&[sqe.addr, sqe.len.into(), sqe.pad2])?;
    if cx.sqe_flags & sqe::BUFFER_SELECT == 0 {
        return Err(Errno::EINVAL);
    }
    Ok(StreamOp::Read(MultishotRead { rw_flags: sqe.op_flags, turn: Turn::default(), selected: None }))
}

pub(crate) fn prep_epoll_wait(sqe: &Sqe, _: &PrepCx) -> Result<StreamOp, Errno> {
    unused(&[sqe.off, sqe.op_flags.into(), sqe.buf_index.into(), sqe.splice_fd_in as u64])?;
    Ok(StreamOp::EpollWait { events: UserPtr::at(sqe.addr), most: sqe.len })
}

impl OpFamily for StreamOp {
    fn try_issue(&mut self, cx: &mut IssueCx<'_>) -> Issue {
        match self {
            Self::Read(read) => read.try_issue(cx),
            Self::EpollWait { events, most } => match io::epoll_now(cx.file.fd, *events, *most) {
                Ok(0) => Issue::WouldBlock(POLLIN),
                other => other.into(),
            },
        }
    }

    /// On a worker: requests that cannot be armed, or that are to block.
    fn run(&mut self, fd: i32) -> Outcome {
        match self {
            Self::Read(_) => Outcome::err(Errno::EBADFD),
            Self::EpollWait { events, most } => loop {
                match io::epoll_now(fd, *events, *most) {
                    Ok(0) => {}
                    other => return other.into(),
                }
                if let Err(errno) = io::poll_wait(fd, POLLIN) {
                    return Outcome::err(errno);
                }
            },
        }
    }

    /// Whether a worker can run it without the ring's tables.
    fn is_lockless(&self) -> bool {
        matches!(self, Self::EpollWait { .. })
    }

    fn take_selected(&mut self) -> Option<SelectedBuf> {
        match self {
            Self::Read(read) => read.selected.take(),
            Self::EpollWait { .. } => None,
        }
    }
}

impl MultishotRead {
    fn try_issue(&mut self, cx: &mut IssueCx<'_>) -> Issue {
        if let Some(issue) = self.turn.answer(POLLIN) {
            return issue;
        }
        if !cx.poll_fired {
            match self.check(cx) {
                Err(errno) => return errno.into(),
                Ok(kind) if kind.is_socket() => {}
                // Only poll tells whether the file has readiness at all.
                Ok(_) => return Issue::PollFirst(POLLIN),
            }
        }
        match cx.ring.buf_groups.select(cx.buf_group, 0) {
            Ok(selected) => self.selected = Some(selected),
            Err(errno) => return errno.into(),
        }
        let mut issue = self.read(cx.file.fd, cx.poll_fired);
        commit_or_recycle(&mut cx.ring.buf_groups, &mut self.selected, &mut issue, false);
        issue
    }

    /// Errors are reported at once, not when there is something to read.
    fn check(&self, cx: &mut IssueCx<'_>) -> Result<FileKind, Errno> {
        let fd = cx.file.fd;
        let kind = FileKind::refresh(fd);
        if kind.is_bad() {
            return Err(Errno::EBADF);
        }
        if kind.is_seekable() {
            return Err(Errno::EBADFD);
        }
        let buffer = cx.ring.buf_groups.select(cx.buf_group, 0)?;
        cx.ring.buf_groups.put(buffer);
        if io::file_flags(fd)? & io::O_ACCMODE == io::O_WRONLY {
            return Err(Errno::EBADF);
        }
        if self.rw_flags & !RWF_NOWAIT != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        Ok(kind)
    }

    fn read(&mut self, fd: i32, poll_fired: bool) -> Issue {
        let Some(selected) = &mut self.selected else { return Errno::ENOBUFS.into() };
        match read_now(fd, selected.addr, selected.len) {
            Err(Errno::EAGAIN) => Issue::WouldBlock(POLLIN),
            Ok(n) if n > 0 => {
                // Less than the buffer's size is most probably all there is.
                if n == selected.len as usize && io::poll_now(fd, POLLIN).is_ok_and(|events| events & POLLIN != 0) {
                    // The submitter reads once, so that the next SQE has its turn.
                    if poll_fired { self.turn.go_on() } else { self.turn.end() }
                } else {
                    self.turn.wait_for_poll();
                }
                Issue::More(Outcome::ok(n as i32).with_flags(selected.mark_used(n as u32)))
            }
            other => other.into(),
        }
    }
}

/// Reads without sleeping, whatever the file.
fn read_now(fd: i32, addr: u64, len: u32) -> Res {
    if FileKind::of(fd).is_socket() {
        return io::recvfrom(fd, UserPtr::at(addr), len as usize, MSG_DONTWAIT, UserPtr::NULL, UserPtr::NULL);
    }
    let iovec = [Iovec { base: addr, len: len.into() }];
    match io::preadv2(fd, io::ptr_of_slice(&iovec), 1, -1, 0, RWF_NOWAIT) {
        // A terminal, for example: a read does not sleep while it is readable.
        Err(errno) if refuses_nowait(errno) && io::poll_now(fd, POLLIN)? != 0 => io::read(fd, UserPtr::at(addr), len as usize),
        Err(errno) if refuses_nowait(errno) => Err(Errno::EAGAIN),
        other => other,
    }
}
