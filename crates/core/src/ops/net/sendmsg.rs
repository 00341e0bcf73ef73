//! `IORING_OP_SENDMSG`.

use super::attempt::{SpuriousWakeups, TryCtx, blocking_call, poll_first};
use super::message::{MsgDirection, UserMsghdr};
use super::socket::{POLLOUT, is_resumable, may_wait, nonblocking};
use super::zerocopy::ZeroCopy;
use crate::ops::issue::{Issue, IssueCx, PrepCx, unused};
use crate::ops::outcome::Outcome;
use uringlet_abi::op_flags::{RECVSEND_POLL_FIRST, SEND_VECTORIZED};
use uringlet_abi::{Sqe, sqe};
use uringlet_sys::io::{MSG_NOSIGNAL, MSG_WAITALL, Res};
use uringlet_sys::{Errno, io};

/// A request to send a message.
#[derive(Debug)]
pub(crate) struct Sendmsg {
    zero_copy: Option<ZeroCopy>,
    message: UserMsghdr,
    /// `MSG_*`.
    msg_flags: u32,
    is_poll_first: bool,
    /// Bytes that earlier tries have sent.
    pub(super) done: usize,
    spurious: SpuriousWakeups,
}

pub(crate) fn prep(sqe: &Sqe, cx: &PrepCx) -> Result<Sendmsg, Errno> {
    unused(&[
        sqe.addr2(),
        sqe.file_index().into(),
        (sqe.ioprio & !(RECVSEND_POLL_FIRST | SEND_VECTORIZED)).into(),
        (sqe.len >> 31).into(),
    ])?;
    if cx.sqe_flags & sqe::BUFFER_SELECT != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    Ok(Sendmsg {
        zero_copy: None,
        message: UserMsghdr::at(sqe.addr),
        msg_flags: sqe.op_flags | MSG_NOSIGNAL,
        is_poll_first: sqe.ioprio & RECVSEND_POLL_FIRST != 0,
        done: 0,
        spurious: SpuriousWakeups::default(),
    })
}

/// `IORING_OP_SENDMSG_ZC`.
pub(crate) fn prep_zc(sqe: &Sqe, _: &PrepCx) -> Result<Sendmsg, Errno> {
    let zero_copy = ZeroCopy::prep(sqe)?;
    unused(&[sqe.addr2(), sqe.file_index().into()])?;
    Ok(Sendmsg {
        zero_copy: Some(zero_copy),
        message: UserMsghdr::at(sqe.addr),
        msg_flags: sqe.op_flags | MSG_NOSIGNAL,
        is_poll_first: sqe.ioprio & RECVSEND_POLL_FIRST != 0,
        done: 0,
        spurious: SpuriousWakeups::default(),
    })
}

impl Sendmsg {
    pub(super) fn try_issue(&mut self, cx: &mut IssueCx<'_>) -> Issue {
        if let Some(zero_copy) = self.zero_copy.filter(|_| !cx.poll_fired)
            && let Err(errno) = self.check_buffer(cx, zero_copy)
        {
            // The kernel looks for the file first, and then what it is.
            return io::file_flags(cx.file.fd).err().unwrap_or(errno).into();
        }
        self.try_send(TryCtx::of(cx))
    }

    pub(super) fn registered_buffer(&self) -> Option<u16> {
        self.zero_copy.and_then(ZeroCopy::buffer)
    }

    /// Whether it uses none of the ring's tables.
    pub(super) fn is_lockless(&self) -> bool {
        self.zero_copy.is_none_or(ZeroCopy::is_lockless)
    }

    fn check_buffer(&mut self, cx: &IssueCx<'_>, zero_copy: ZeroCopy) -> Result<(), Errno> {
        if zero_copy.is_lockless() {
            return Ok(());
        }
        self.import_args()?;
        zero_copy.check_buffer(cx, self.message.iovecs())
    }

    pub(super) fn try_send(&mut self, cx: TryCtx) -> Issue {
        if self.zero_copy.is_some()
            && !cx.poll_fired
            && let Err(errno) = ZeroCopy::check_socket(cx.fd)
        {
            return errno.into();
        }
        if self.is_poll_first
            && let Some(issue) = poll_first(&cx, POLLOUT, may_wait(self.msg_flags))
        {
            return issue;
        }
        if let Err(errno) = self.prepare() {
            return errno.into();
        }
        let fd = cx.fd;
        match self.message.send(fd, nonblocking(self.msg_flags)) {
            Err(Errno::EAGAIN) if may_wait(self.msg_flags) => self.spurious.on_eagain(&cx, POLLOUT, 0),
            Ok(n) if self.is_resumed_after(fd, n) => Issue::PollFirst(POLLOUT),
            res => Issue::Complete(self.outcome(res)),
        }
    }

    /// With `MSG_WAITALL` several calls may be needed: they use a copy of the header.
    fn prepare(&mut self) -> Result<(), Errno> {
        if self.msg_flags & MSG_WAITALL != 0 { self.import_args() } else { Ok(()) }
    }

    fn is_resumed_after(&mut self, fd: i32, n: usize) -> bool {
        let is_resumed = n > 0 && self.msg_flags & MSG_WAITALL != 0 && n < self.message.left() && is_resumable(fd, self.msg_flags);
        if is_resumed {
            self.message.advance(n);
            self.done += n;
        }
        is_resumed
    }

    fn outcome(&self, res: Res) -> Outcome {
        match res {
            Ok(n) => {
                let is_failure = self.msg_flags & MSG_WAITALL != 0 && n < self.message.left();
                Outcome { is_failure, ..Outcome::ok((self.done + n) as i32) }
            }
            Err(_) if self.done > 0 => Outcome { is_failure: true, ..Outcome::ok(self.done as i32) },
            Err(errno) => Outcome::err(errno),
        }
    }

    /// Sends, sleeping as needed.
    pub(super) fn run(&mut self, fd: i32) -> Outcome {
        if let Err(errno) = self.prepare() {
            return Outcome::err(errno);
        }
        loop {
            let res = blocking_call(fd, POLLOUT, may_wait(self.msg_flags), || self.message.send(fd, self.msg_flags));
            match res {
                Ok(n) if self.is_resumed_after(fd, n) => {}
                res => return self.outcome(res),
            }
        }
    }

    pub(super) fn import_args(&mut self) -> Result<(), Errno> {
        self.message.import_args(MsgDirection::Send)
    }
}
