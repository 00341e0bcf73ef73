//! `IORING_OP_RECVMSG`, also into a provided buffer, and multishot: then address, ancillary data
//! and payload go into the provided buffer, behind a `struct io_uring_recvmsg_out`.

use super::attempt::{Backlog, SpuriousWakeups, TryCtx, blocking_call, is_nonempty, no_buffer, poll_first, stay_armed};
use super::message::{MsgDirection, UserMsghdr};
use super::socket::{MSG_CTRUNC, MSG_TRUNC, is_resumable, may_wait, must_be_socket, nonblocking, receive_mask};
use crate::ops::FilledBytes;
use crate::ops::buffers::commit_or_recycle;
use crate::ops::issue::{Issue, IssueCx, PrepCx, unused};
use crate::ops::outcome::Outcome;
use crate::ops::turn::Turn;
use crate::rsrc::buf_ring::SelectedBuf;
use uringlet_abi::op_flags::{RECV_MULTISHOT, RECVSEND_POLL_FIRST};
use uringlet_abi::register::Iovec;
use uringlet_abi::{Sqe, cqe, sqe};
use uringlet_sys::io::{self, MSG_WAITALL, Msghdr, Res};
use uringlet_sys::{Errno, UserPtr, user};

/// Size of `struct io_uring_recvmsg_out`.
const OUT: u32 = 16;

/// The sizes of the parts of a provided buffer before the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Parts {
    namelen: u32,
    controllen: u32,
}

impl Parts {
    /// # Errors
    /// `EOVERFLOW` if the parts before the payload are too large.
    fn of(header: &Msghdr) -> Result<Self, Errno> {
        let namelen = i32::try_from(header.namelen).map_err(|_| Errno::EOVERFLOW)?;
        let controllen = i32::try_from(header.controllen).map_err(|_| Errno::EOVERFLOW)?;
        (OUT as i32).checked_add(namelen).and_then(|n| n.checked_add(controllen)).ok_or(Errno::EOVERFLOW)?;
        Ok(Self { namelen: namelen as u32, controllen: controllen as u32 })
    }

    /// Bytes before the payload.
    fn before_payload(self) -> u32 {
        OUT + self.namelen + self.controllen
    }

    /// Receives a message into the buffer. Returns the length of its payload.
    fn receive(self, fd: i32, addr: u64, room: u32, flags: u32) -> Res {
        let payload = Iovec { base: addr + u64::from(self.before_payload()), len: room.into() };
        let name = addr + u64::from(OUT);
        let control = name + u64::from(self.namelen);
        let mut header = Msghdr {
            name: if self.namelen > 0 { name } else { 0 },
            namelen: self.namelen,
            iov: io::ptr_of(&payload).addr() as u64,
            iovlen: 1,
            control: if self.controllen > 0 { control } else { 0 },
            controllen: self.controllen.into(),
            ..Msghdr::default()
        };
        let n = io::recvmsg(fd, io::ptr_of_mut(&mut header), flags)?;
        user::write_slice(UserPtr::at(addr), &[header.namelen, header.controllen as u32, n as u32, header.flags])?;
        Ok(n)
    }
}

/// A request to receive a message.
#[derive(Debug)]
pub(crate) struct Recvmsg {
    message: UserMsghdr,
    /// `MSG_*`.
    msg_flags: u32,
    is_poll_first: bool,
    pub(super) selects: bool,
    /// Most bytes to take from a provided buffer; 0: its size.
    cap: u32,
    /// Multishot: the layout of the buffers.
    multishot: Option<Parts>,
    /// Multishot: what the socket can tell, once known.
    backlog: Option<Backlog>,
    /// Multishot: when it is tried again.
    turn: Turn,
    /// The last receive has emptied a stream whose readiness edges are all seen.
    drained_stream: bool,
    /// Bytes that earlier tries have received.
    pub(super) done: usize,
    pub(super) selected: Option<SelectedBuf>,
    spurious: SpuriousWakeups,
}

pub(crate) fn prep(sqe: &Sqe, cx: &PrepCx) -> Result<Recvmsg, Errno> {
    unused(&[sqe.addr2(), sqe.file_index().into(), (sqe.ioprio & !(RECVSEND_POLL_FIRST | RECV_MULTISHOT)).into(), (sqe.len >> 31).into()])?;
    let selects = cx.sqe_flags & sqe::BUFFER_SELECT != 0;
    let is_multishot = sqe.ioprio & RECV_MULTISHOT != 0;
    if is_multishot && (!selects || sqe.op_flags & MSG_WAITALL != 0) {
        return Err(Errno::EINVAL);
    }
    let mut op = Recvmsg {
        message: UserMsghdr::at(sqe.addr),
        msg_flags: sqe.op_flags,
        is_poll_first: sqe.ioprio & RECVSEND_POLL_FIRST != 0,
        selects,
        cap: 0,
        multishot: None,
        backlog: None,
        turn: Turn::default(),
        drained_stream: false,
        done: 0,
        selected: None,
        spurious: SpuriousWakeups::default(),
    };
    if selects {
        op.read_shape(sqe.addr, is_multishot)?;
    }
    Ok(op)
}

impl Recvmsg {
    /// Reads from the header what is needed to select a buffer.
    fn read_shape(&mut self, addr: u64, is_multishot: bool) -> Result<(), Errno> {
        let header: Msghdr = user::read(UserPtr::at(addr))?;
        self.multishot = if is_multishot { Some(Parts::of(&header)?) } else { None };
        match header.iovlen {
            0 => {}
            1 => {
                let iovec: [u64; 2] = user::read(UserPtr::at(header.iov))?;
                self.cap = iovec[1].min(i32::MAX as u64) as u32;
            }
            _ => return Err(Errno::EINVAL),
        }
        if is_multishot { Ok(()) } else { self.import_args() }
    }

    /// Of a multishot the parts of a buffer are not told apart.
    pub(super) fn filled(&self) -> Option<FilledBytes> {
        (self.multishot.is_none() && self.done == 0).then(|| self.message.filled())
    }

    pub(super) fn try_issue(&mut self, cx: &mut IssueCx<'_>) -> Issue {
        let try_cx = TryCtx::receive(cx, self.msg_flags);
        if let Some(issue) = self.poll_first(&try_cx) {
            return issue;
        }
        if let Some(issue) = self.turn.answer(receive_mask(self.msg_flags)) {
            return issue;
        }
        if let Err(errno) = self.prepare() {
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
        if core::mem::take(&mut self.drained_stream) {
            cx.ring.note_empty(try_cx.fd);
        }
        commit_or_recycle(&mut cx.ring.buf_groups, &mut self.selected, &mut issue, self.done > 0);
        issue
    }

    /// With `MSG_WAITALL` several calls may be needed: they use a copy of the header.
    fn prepare(&mut self) -> Result<(), Errno> {
        if self.msg_flags & MSG_WAITALL != 0 { self.import_args() } else { Ok(()) }
    }

    fn select(&mut self, cx: &mut IssueCx<'_>) -> Result<(), Errno> {
        let chosen = cx.ring.buf_groups.select(cx.buf_group, self.cap)?;
        self.message.use_buffer(chosen.addr, chosen.len);
        self.selected = Some(chosen);
        // A multishot request fills the next buffer from its start again.
        self.cap = if self.multishot.is_some() { 0 } else { self.cap };
        Ok(())
    }

    fn poll_first(&self, cx: &TryCtx) -> Option<Issue> {
        if self.is_poll_first { poll_first(cx, receive_mask(self.msg_flags), may_wait(self.msg_flags)) } else { None }
    }

    /// A try into the program's own buffers.
    pub(super) fn try_receive(&mut self, cx: TryCtx) -> Issue {
        if let Some(issue) = self.poll_first(&cx) {
            return issue;
        }
        match self.prepare() {
            Ok(()) => self.receive_now(cx),
            Err(errno) => errno.into(),
        }
    }

    fn receive_now(&mut self, cx: TryCtx) -> Issue {
        let (fd, mask) = (cx.fd, receive_mask(self.msg_flags));
        let flags = nonblocking(self.msg_flags);
        let res = match (self.multishot, &self.selected) {
            (Some(parts), Some(buffer)) => {
                let (addr, len) = (buffer.addr, buffer.len);
                return self.try_multishot(cx, parts, addr, len);
            }
            _ => self.message.receive(fd, flags),
        };
        match res {
            Err(Errno::EAGAIN) => self.spurious.on_eagain(&cx, mask, self.msg_flags),
            Ok((n, _)) if self.is_resumed_after(fd, n) => Issue::PollFirst(mask),
            res => {
                let is_nonempty = res.is_ok_and(|(n, _)| is_nonempty(fd, n, self.message.left(), self.msg_flags));
                self.drained_stream = cx.short_read_drains && !is_nonempty && res.is_ok_and(|(n, _)| n > 0);
                let outcome = self.outcome(res);
                Issue::Complete(if is_nonempty { outcome.with_flags(cqe::SOCK_NONEMPTY) } else { outcome })
            }
        }
    }

    fn try_multishot(&mut self, cx: TryCtx, parts: Parts, addr: u64, len: u32) -> Issue {
        let fd = cx.fd;
        let Some(room) = len.checked_sub(parts.before_payload()) else { return no_room(fd).into() };
        let n = match parts.receive(fd, addr, room, nonblocking(self.msg_flags)) {
            Err(Errno::EAGAIN) => {
                let mask = receive_mask(self.msg_flags);
                return stay_armed(self.spurious.on_eagain(&cx, mask, self.msg_flags), mask);
            }
            Err(errno) => return errno.into(),
            Ok(n) => n,
        };
        let backlog = *self.backlog.get_or_insert_with(|| Backlog::of(fd));
        let is_nonempty = backlog.has_more(&cx, n, room as usize);
        let outcome = self.multishot_outcome(parts, n, room);
        let outcome = if is_nonempty { outcome.with_flags(cqe::SOCK_NONEMPTY) } else { outcome };
        if n == 0 {
            return Issue::Complete(outcome);
        }
        if is_nonempty || backlog == Backlog::Unknown {
            self.turn.go_on();
        } else {
            self.drained_stream = cx.short_read_drains;
            if self.drained_stream { self.turn.wait_for_edge() } else { self.turn.wait_for_poll() }
        }
        Issue::More(outcome)
    }

    fn multishot_outcome(&mut self, parts: Parts, n: usize, room: u32) -> Outcome {
        let total = parts.before_payload() + n.min(room as usize) as u32;
        let flags = self.selected.as_mut().map_or(0, |selected| selected.mark_used(total));
        Outcome::ok(total as i32).with_flags(flags)
    }

    fn waits_for_all(&self) -> bool {
        self.msg_flags & MSG_WAITALL != 0 && (self.done > 0 || !self.message.has_control())
    }

    fn is_resumed_after(&mut self, fd: i32, n: usize) -> bool {
        let is_resumed = n > 0 && self.waits_for_all() && n < self.message.left() && is_resumable(fd, self.msg_flags);
        if is_resumed {
            self.message.advance(n);
            self.done += n;
            // The buffer holds data now, even if the request fails later.
            if let Some(selected) = &mut self.selected {
                selected.mark_used(self.done as u32);
            }
        }
        is_resumed
    }

    fn outcome(&mut self, res: Result<(usize, u32), Errno>) -> Outcome {
        let outcome = match res {
            Ok((n, flags)) => {
                let is_short = self.waits_for_all() && n < self.message.left();
                let is_cut = self.msg_flags & MSG_WAITALL != 0 && flags & (MSG_TRUNC | MSG_CTRUNC) != 0;
                Outcome { is_failure: is_short || is_cut, ..Outcome::ok((self.done + n) as i32) }
            }
            Err(_) if self.done > 0 => Outcome { is_failure: true, ..Outcome::ok(self.done as i32) },
            Err(errno) => return Outcome::err(errno),
        };
        match &mut self.selected {
            Some(selected) if outcome.res > 0 => outcome.with_flags(selected.mark_used(outcome.res as u32)),
            _ => outcome,
        }
    }

    /// Receives, sleeping as needed.
    pub(super) fn run(&mut self, fd: i32) -> Outcome {
        if let Err(errno) = self.prepare() {
            return Outcome::err(errno);
        }
        if let (Some(parts), Some(buffer)) = (self.multishot, &self.selected) {
            let (addr, len) = (buffer.addr, buffer.len);
            return self.run_once(fd, parts, addr, len);
        }
        loop {
            let mut flags = 0;
            let res = blocking_call(fd, receive_mask(self.msg_flags), may_wait(self.msg_flags), || {
                self.message.receive(fd, self.msg_flags).map(|(n, f)| {
                    flags = f;
                    n
                })
            });
            match res {
                Ok(n) if self.is_resumed_after(fd, n) => {}
                Ok(n) if is_nonempty(fd, n, self.message.left(), self.msg_flags) => {
                    return self.outcome(Ok((n, flags))).with_flags(cqe::SOCK_NONEMPTY);
                }
                res => return self.outcome(res.map(|n| (n, flags))),
            }
        }
    }

    /// Without poll a multishot request ends with its first message.
    fn run_once(&mut self, fd: i32, parts: Parts, addr: u64, len: u32) -> Outcome {
        let Some(room) = len.checked_sub(parts.before_payload()) else { return Outcome::err(no_room(fd)) };
        let receive = || parts.receive(fd, addr, room, self.msg_flags);
        match blocking_call(fd, receive_mask(self.msg_flags), may_wait(self.msg_flags), receive) {
            Ok(n) => self.multishot_outcome(parts, n, room),
            Err(errno) => Outcome::err(errno),
        }
    }

    pub(super) fn import_args(&mut self) -> Result<(), Errno> {
        if self.multishot.is_some() {
            // `prep` has read all that is needed of the header.
            return Ok(());
        }
        self.message.import_args(MsgDirection::Receive)
    }
}

/// The error of a multishot request whose buffer does not hold what stands before the payload. A
/// file that is no socket comes before it.
fn no_room(fd: i32) -> Errno {
    must_be_socket(fd).err().unwrap_or(Errno::EFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recvmsg_buffers_are_divided_only_without_overflow() {
        let header = |namelen, controllen| Msghdr { namelen, controllen, ..Msghdr::default() };
        assert_eq!(Parts::of(&header(16, 80)).map(Parts::before_payload), Ok(112));
        assert_eq!(Parts::of(&header(u32::MAX, 0)), Err(Errno::EOVERFLOW));
        assert_eq!(Parts::of(&header(0, 1 << 31)), Err(Errno::EOVERFLOW));
        assert_eq!(Parts::of(&header(0, i32::MAX as u64 - 15)), Err(Errno::EOVERFLOW));
    }

    #[test]
    fn provided_buffers_replace_at_most_one_iovec() {
        let cx = PrepCx { setup: 0, sqe_flags: sqe::BUFFER_SELECT, is_after_link: false, is_wide: false };
        let iovecs = [Iovec { base: 0, len: 9 }; 2];
        let try_with = |iovlen| {
            let header = Msghdr { iov: io::ptr_of_slice(&iovecs).addr() as u64, iovlen, ..Msghdr::default() };
            prep(&Sqe { addr: io::ptr_of(&header).addr() as u64, ..Sqe::default() }, &cx).err()
        };
        assert_eq!(try_with(0), None);
        assert_eq!(try_with(1), None);
        assert_eq!(try_with(2), Some(Errno::EINVAL));
        assert_eq!(try_with(1025), Some(Errno::EINVAL));
    }
}
