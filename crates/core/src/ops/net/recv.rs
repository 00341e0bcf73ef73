//! `IORING_OP_RECV`, single and multishot, also into provided buffers.

mod bundle;

use super::attempt::{Backlog, SpuriousWakeups, TryCtx, blocking_call, is_nonempty, no_buffer, poll_any_first, stay_armed};
use super::socket::{MSG_CTRUNC, MSG_TRUNC, POLLIN, is_resumable, may_wait, nonblocking, receive_mask};
use super::zerocopy::check_data;
use crate::ops::FilledBytes;
use crate::ops::buffers::commit_or_recycle;
use crate::ops::iovecs::{self, is_beyond_memory};
use crate::ops::issue::{Issue, IssueCx, PrepCx, unused};
use crate::ops::outcome::Outcome;
use crate::ops::turn::Turn;
use crate::rsrc::buf_ring::SelectedBuf;
use alloc::boxed::Box;
use uringlet_abi::op_flags::{RECV_MULTISHOT, RECVSEND_BUNDLE, RECVSEND_FIXED_BUF, RECVSEND_POLL_FIRST};
use uringlet_abi::register::Iovec;
use uringlet_abi::{Sqe, cqe, sqe};
use uringlet_sys::io::{self, MSG_WAITALL, Res};
use uringlet_sys::{Errno, UserPtr};

/// A request to receive.
#[derive(Debug)]
pub(crate) struct Recv {
    /// The program's buffer, or the provided one.
    addr: u64,
    /// Its size, bytes.
    len: u32,
    /// Most bytes to take from a provided buffer; 0: its size.
    cap: u32,
    /// The registered buffer that the data goes to.
    buffer: Option<u16>,
    /// The rest of a bundle, instead of the buffer.
    iovecs: Option<Box<[Iovec]>>,
    /// Multishot: bytes after which the request ends, if there is such a limit.
    left_in_all: Option<u32>,
    /// `MSG_*`.
    msg_flags: u32,
    is_poll_first: bool,
    is_multishot: bool,
    /// Into several provided buffers at once.
    is_bundle: bool,
    pub(super) selects: bool,
    /// Multishot: what the socket can tell, once known.
    backlog: Option<Backlog>,
    /// Multishot: when it is tried again.
    turn: Turn,
    /// The last receive has emptied a stream whose readiness edges are all seen.
    drained_stream: bool,
    /// Multishot: the last receive of this turn has told that the socket has more.
    follows_nonempty: bool,
    /// Bytes that earlier tries have received.
    pub(super) done: usize,
    pub(super) selected: Option<SelectedBuf>,
    spurious: SpuriousWakeups,
}

/// The flags of RECV.
const KNOWN: u16 = RECVSEND_POLL_FIRST | RECVSEND_FIXED_BUF | RECV_MULTISHOT | RECVSEND_BUNDLE;

pub(crate) fn prep(sqe: &Sqe, cx: &PrepCx) -> Result<Recv, Errno> {
    if (sqe.len as i32) < 0 || sqe.ioprio & !KNOWN != 0 {
        return Err(Errno::EINVAL);
    }
    let selects = cx.sqe_flags & sqe::BUFFER_SELECT != 0;
    let is_multishot = sqe.ioprio & RECV_MULTISHOT != 0;
    let limit = sqe.splice_fd_in as u32;
    unused(&[sqe.addr2(), if is_multishot { 0 } else { limit.into() }])?;
    if is_multishot && (!selects || sqe.op_flags & MSG_WAITALL != 0) {
        return Err(Errno::EINVAL);
    }
    let buffer = (sqe.ioprio & RECVSEND_FIXED_BUF != 0).then_some(sqe.buf_index);
    if buffer.is_some() && (selects || sqe.ioprio & RECVSEND_BUNDLE != 0) {
        return Err(Errno::EINVAL);
    }
    if !selects && buffer.is_none() && is_beyond_memory(sqe.addr, sqe.len.into()) {
        return Err(Errno::EFAULT);
    }
    Ok(Recv {
        addr: sqe.addr,
        len: sqe.len,
        cap: sqe.len,
        buffer,
        iovecs: None,
        left_in_all: (is_multishot && limit != 0).then_some(limit),
        msg_flags: sqe.op_flags,
        is_poll_first: sqe.ioprio & RECVSEND_POLL_FIRST != 0,
        is_multishot,
        is_bundle: selects && sqe.ioprio & RECVSEND_BUNDLE != 0,
        selects,
        backlog: None,
        turn: Turn::default(),
        drained_stream: false,
        follows_nonempty: false,
        done: 0,
        selected: None,
        spurious: SpuriousWakeups::default(),
    })
}

impl Recv {
    #[inline(always)]
    pub(super) fn try_issue(&mut self, cx: &mut IssueCx<'_>) -> Issue {
        let try_cx = TryCtx::receive(cx, self.msg_flags);
        if let Some(issue) = self.poll_first(&try_cx) {
            return issue;
        }
        if let Some(issue) = self.turn.answer(receive_mask(self.msg_flags)) {
            return issue;
        }
        if let Some(index) = self.buffer.filter(|_| !cx.poll_fired || self.is_poll_first)
            && let Err(errno) = check_data(cx, index, &[Iovec { base: self.addr, len: self.len.into() }])
        {
            return errno.into();
        }
        if self.selects
            && self.selected.is_none()
            && let Err(errno) = self.select(cx)
        {
            return no_buffer(cx.file.fd, errno);
        }
        let untried = try_cx.untried(cx, self.msg_flags, receive_mask(self.msg_flags));
        let mut issue = untried.unwrap_or_else(|| self.receive_now(try_cx));
        if self.is_bundle {
            self.append(cx, &mut issue);
            let says_more = matches!(&issue, Issue::More(outcome) if outcome.flags & cqe::SOCK_NONEMPTY != 0);
            self.follows_nonempty = says_more && self.turn.goes_on();
        }
        if core::mem::take(&mut self.drained_stream) {
            cx.ring.note_empty(try_cx.fd);
        }
        commit_or_recycle(&mut cx.ring.buf_groups, &mut self.selected, &mut issue, self.done > 0);
        issue
    }

    fn select(&mut self, cx: &mut IssueCx<'_>) -> Result<(), Errno> {
        let chosen = if self.is_bundle {
            cx.ring.buf_groups.select_bundle(cx.buf_group, self.extent())?
        } else {
            cx.ring.buf_groups.select(cx.buf_group, self.cap)?
        };
        self.take_buffers(&chosen);
        self.selected = Some(chosen);
        Ok(())
    }

    /// Where the bytes begin, unless they are in several buffers.
    pub(super) fn filled(&self) -> Option<FilledBytes> {
        (!self.is_bundle && self.iovecs.is_none()).then(|| FilledBytes::Buffer(UserPtr::at(self.addr)))
    }

    pub(super) fn registered_buffer(&self) -> Option<u16> {
        self.buffer
    }

    /// Whether it uses no buffer of the ring.
    pub(super) fn is_lockless(&self) -> bool {
        !self.selects && self.buffer.is_none()
    }

    /// Whether it waits for nothing but bytes.
    pub(super) fn is_plain(&self) -> bool {
        may_wait(self.msg_flags) && receive_mask(self.msg_flags) == POLLIN && self.len > 0
    }

    fn poll_first(&self, cx: &TryCtx) -> Option<Issue> {
        if self.is_poll_first { poll_any_first(cx, receive_mask(self.msg_flags), may_wait(self.msg_flags)) } else { None }
    }

    /// Bytes that a try moves at most, unless its buffer is not selected yet.
    pub(super) fn max_transfer(&self) -> Option<usize> {
        (!self.selects).then(|| self.left())
    }

    /// A try into the program's own buffer.
    pub(super) fn try_receive(&mut self, cx: TryCtx) -> Issue {
        self.poll_first(&cx).unwrap_or_else(|| self.receive_now(cx))
    }

    #[inline(always)]
    fn receive_now(&mut self, cx: TryCtx) -> Issue {
        let (fd, mask) = (cx.fd, receive_mask(self.msg_flags));
        match self.receive(fd, nonblocking(self.msg_flags)) {
            Err(Errno::EAGAIN) if self.is_multishot => stay_armed(self.spurious.on_eagain(&cx, mask, self.msg_flags), mask),
            Err(Errno::EAGAIN) => self.spurious.on_eagain(&cx, mask, self.msg_flags),
            Ok((n, _)) if self.is_resumed_after(fd, n) => Issue::PollFirst(mask),
            res => self.answer(&cx, res),
        }
    }

    /// One system call for what is left. Returns the message's flags too if they matter.
    #[inline(always)]
    fn receive(&self, fd: i32, flags: u32) -> Result<(usize, u32), Errno> {
        let (buf, len) = (UserPtr::at(self.addr).add(self.done), self.left());
        if let Some(iovecs) = &self.iovecs {
            let (iov, iovlen) = (io::ptr_of_slice(iovecs).addr() as u64, iovecs.len() as u64);
            let mut header = io::Msghdr { iov, iovlen, ..io::Msghdr::default() };
            let n = io::recvmsg(fd, io::ptr_of_mut(&mut header), flags)?;
            return Ok((n, header.flags));
        }
        if flags & MSG_WAITALL == 0 {
            return io::recvfrom(fd, buf, len, flags, UserPtr::NULL, UserPtr::NULL).map(|n| (n, 0));
        }
        let iovec = Iovec { base: buf.addr() as u64, len: len as u64 };
        let mut header = io::Msghdr { iov: io::ptr_of(&iovec).addr() as u64, iovlen: 1, ..io::Msghdr::default() };
        let n = io::recvmsg(fd, io::ptr_of_mut(&mut header), flags)?;
        Ok((n, header.flags))
    }

    fn left(&self) -> usize {
        self.iovecs.as_deref().map_or(self.len as usize - self.done, iovecs::bytes)
    }

    fn is_resumed_after(&mut self, fd: i32, n: usize) -> bool {
        let is_resumed = n > 0 && n < self.left() && is_resumable(fd, self.msg_flags);
        if is_resumed {
            if let Some(iovecs) = &mut self.iovecs {
                iovecs::skip(iovecs, n);
            }
            self.done += n;
            // The buffer holds data now, even if the request fails later.
            if let Some(selected) = &mut self.selected {
                selected.mark_used(self.done as u32);
            }
        }
        is_resumed
    }

    fn answer(&mut self, cx: &TryCtx, res: Result<(usize, u32), Errno>) -> Issue {
        let Ok((n, _)) = res else { return Issue::Complete(self.outcome(res)) };
        if self.is_multishot {
            return self.answer_multishot(cx, n, res);
        }
        let is_nonempty = is_nonempty(cx.fd, n, self.left(), self.msg_flags);
        self.drained_stream = cx.short_read_drains && n > 0 && !is_nonempty;
        let outcome = self.outcome(res);
        Issue::Complete(if is_nonempty { outcome.with_flags(cqe::SOCK_NONEMPTY) } else { outcome })
    }

    /// Issues the next receive at once if the socket has more, or cannot tell.
    fn answer_multishot(&mut self, cx: &TryCtx, n: usize, res: Result<(usize, u32), Errno>) -> Issue {
        let backlog = *self.backlog.get_or_insert_with(|| Backlog::of(cx.fd));
        let is_nonempty = backlog.has_more(cx, n, self.left());
        let outcome = self.outcome(res);
        let outcome = if is_nonempty { outcome.with_flags(cqe::SOCK_NONEMPTY) } else { outcome };
        if n == 0 || self.reaches_limit(n) {
            return Issue::Complete(outcome);
        }
        if is_nonempty || backlog == Backlog::Unknown {
            let is_full_bundle = self.is_bundle && self.cap != 0 && n >= self.cap as usize;
            if is_full_bundle { self.turn.end() } else { self.turn.go_on() }
        } else {
            self.drained_stream = cx.short_read_drains;
            if self.drained_stream { self.turn.wait_for_edge() } else { self.turn.wait_for_poll() }
        }
        Issue::More(outcome)
    }

    fn reaches_limit(&mut self, n: usize) -> bool {
        let Some(left) = &mut self.left_in_all else { return false };
        *left = left.saturating_sub(n as u32);
        *left == 0
    }

    /// The result, with the bytes of earlier tries. A short receive is a failure only with
    /// `MSG_WAITALL`.
    fn outcome(&mut self, res: Result<(usize, u32), Errno>) -> Outcome {
        let waits_for_all = self.msg_flags & MSG_WAITALL != 0;
        let is_failure = match res {
            Ok((n, flags)) => waits_for_all && (n < self.left() || flags & (MSG_TRUNC | MSG_CTRUNC) != 0),
            Err(_) => true,
        };
        let total: Res = match res {
            Ok((n, _)) => Ok(self.done + n),
            Err(_) if self.done > 0 => Ok(self.done),
            Err(errno) => Err(errno),
        };
        let mut outcome = Outcome { is_failure, ..Outcome::from(total) };
        if let (Some(selected), Ok(1..)) = (&mut self.selected, total) {
            outcome.flags |= selected.mark_used(outcome.res as u32);
        }
        outcome
    }

    /// Receives, sleeping as needed.
    pub(super) fn run(&mut self, fd: i32) -> Outcome {
        let mask = receive_mask(self.msg_flags);
        loop {
            let mut flags = 0;
            let res = blocking_call(fd, mask, may_wait(self.msg_flags), || {
                self.receive(fd, self.msg_flags).map(|(n, f)| {
                    flags = f;
                    n
                })
            });
            match res {
                Ok(n) if self.is_resumed_after(fd, n) => {}
                Ok(n) if is_nonempty(fd, n, self.left(), self.msg_flags) => {
                    return self.outcome(Ok((n, flags))).with_flags(cqe::SOCK_NONEMPTY);
                }
                res => return self.outcome(res.map(|n| (n, flags))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SELECTING: PrepCx = PrepCx { setup: 0, sqe_flags: sqe::BUFFER_SELECT, is_after_link: false, is_wide: false };
    const PLAIN: PrepCx = PrepCx { setup: 0, sqe_flags: 0, is_after_link: false, is_wide: false };

    #[test]
    fn multishot_receives_need_provided_buffers_and_no_waitall() {
        let multishot = Sqe { ioprio: RECV_MULTISHOT, ..Sqe::default() };
        assert!(prep(&multishot, &SELECTING).is_ok());
        assert!(prep(&Sqe { len: 3, splice_fd_in: 5, ..multishot }, &SELECTING).is_ok());
        assert_eq!(prep(&multishot, &PLAIN).err(), Some(Errno::EINVAL));
        assert_eq!(prep(&Sqe { op_flags: MSG_WAITALL, ..multishot }, &SELECTING).err(), Some(Errno::EINVAL));
    }

    #[test]
    fn unused_fields_are_zero() {
        for bad in [Sqe { off: 1, ..Sqe::default() }, Sqe { splice_fd_in: 1, ..Sqe::default() }, Sqe { ioprio: 1 << 5, ..Sqe::default() }] {
            assert_eq!(prep(&bad, &PLAIN).err(), Some(Errno::EINVAL), "{bad:?}");
        }
    }
}
