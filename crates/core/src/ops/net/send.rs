//! `IORING_OP_SEND`, also as sendto, from iovecs (`IORING_SEND_VECTORIZED`) or from a provided
//! buffer.

use super::attempt::{SpuriousWakeups, TryCtx, blocking_call, no_buffer, poll_first};
use super::connect::SockAddr;
use super::socket::{MAX_IOVECS, POLLOUT, is_resumable, may_wait, nonblocking};
use super::zerocopy::{ZeroCopy, check_data};
use crate::ops::buffers::commit_or_recycle;
use crate::ops::iovecs::{self, is_beyond_memory};
use crate::ops::issue::{Issue, IssueCx, PrepCx};
use crate::ops::outcome::Outcome;
use crate::rsrc::buf_ring::{BundleLimit, SelectedBuf};
use alloc::boxed::Box;
use uringlet_abi::op_flags::{RECVSEND_BUNDLE, RECVSEND_FIXED_BUF, RECVSEND_POLL_FIRST, SEND_VECTORIZED};
use uringlet_abi::register::Iovec;
use uringlet_abi::{Sqe, sqe};
use uringlet_sys::io::{self, MSG_NOSIGNAL, MSG_WAITALL, Res};
use uringlet_sys::{Errno, UserPtr};

/// The destination of a datagram.
#[derive(Debug)]
enum Destination {
    /// At this address of the program, with this length; null for the connected peer.
    Program(u64, u16),
    Copied(SockAddr),
}

/// A request to send.
#[derive(Debug)]
pub(crate) struct Send {
    /// It is a SEND_ZC.
    is_zero_copy: bool,
    /// The registered buffer that holds the data.
    buffer: Option<u16>,
    /// The program's buffer, or the provided one.
    addr: u64,
    /// Its size, bytes.
    len: u32,
    /// Most bytes to take from a ring's provided buffer; 0: its size.
    cap: u32,
    /// `MSG_*`.
    msg_flags: u32,
    is_poll_first: bool,
    /// Continues while there are buffers, with as many at a time as there are.
    is_bundle: bool,
    pub(super) selects: bool,
    destination: Destination,
    /// The bytes left to send, instead of the buffer.
    iovecs: Option<Box<[Iovec]>>,
    /// Bytes that earlier tries have sent.
    pub(super) done: usize,
    pub(super) selected: Option<SelectedBuf>,
    spurious: SpuriousWakeups,
}

/// The flags of SEND.
const KNOWN: u16 = RECVSEND_POLL_FIRST | RECVSEND_FIXED_BUF | RECVSEND_BUNDLE | SEND_VECTORIZED;

pub(crate) fn prep(sqe: &Sqe, cx: &PrepCx) -> Result<Send, Errno> {
    let beside_addr_len = sqe.splice_fd_in as u32 >> 16;
    if beside_addr_len != 0 || (sqe.len as i32) < 0 || sqe.ioprio & !KNOWN != 0 {
        return Err(Errno::EINVAL);
    }
    let selects = cx.sqe_flags & sqe::BUFFER_SELECT != 0;
    let is_bundle = sqe.ioprio & RECVSEND_BUNDLE != 0;
    let buffer = (sqe.ioprio & RECVSEND_FIXED_BUF != 0).then_some(sqe.buf_index);
    if buffer.is_some() && (selects || is_bundle || sqe.ioprio & SEND_VECTORIZED != 0) {
        return Err(Errno::EINVAL);
    }
    let iovecs = match sqe.ioprio & SEND_VECTORIZED != 0 && !selects {
        true if u64::from(sqe.len) > MAX_IOVECS => return Err(Errno::EINVAL),
        true => Some(iovecs::read(sqe.addr, sqe.len as usize)?),
        false if !selects && buffer.is_none() && is_beyond_memory(sqe.addr, sqe.len.into()) => return Err(Errno::EFAULT),
        false => None,
    };
    Ok(Send {
        is_zero_copy: false,
        buffer,
        addr: sqe.addr,
        len: sqe.len,
        cap: sqe.len,
        msg_flags: sqe.op_flags | MSG_NOSIGNAL | if is_bundle { MSG_WAITALL } else { 0 },
        is_poll_first: sqe.ioprio & RECVSEND_POLL_FIRST != 0,
        is_bundle,
        selects,
        destination: Destination::Program(sqe.addr2(), sqe.splice_fd_in as u16),
        iovecs,
        done: 0,
        selected: None,
        spurious: SpuriousWakeups::default(),
    })
}

/// `IORING_OP_SEND_ZC`.
pub(crate) fn prep_zc(sqe: &Sqe, _: &PrepCx) -> Result<Send, Errno> {
    let buffer = ZeroCopy::prep(sqe)?.buffer();
    if sqe.splice_fd_in as u32 >> 16 != 0 {
        return Err(Errno::EINVAL);
    }
    let iovecs = match sqe.ioprio & SEND_VECTORIZED != 0 {
        true if buffer.is_some() => return Err(Errno::EINVAL),
        true if u64::from(sqe.len) > MAX_IOVECS => return Err(Errno::EINVAL),
        true => Some(iovecs::read(sqe.addr, sqe.len as usize)?),
        false if buffer.is_none() && is_beyond_memory(sqe.addr, sqe.len.into()) => return Err(Errno::EFAULT),
        false => None,
    };
    Ok(Send {
        is_zero_copy: true,
        buffer,
        addr: sqe.addr,
        len: sqe.len,
        cap: 0,
        msg_flags: sqe.op_flags | MSG_NOSIGNAL,
        is_poll_first: sqe.ioprio & RECVSEND_POLL_FIRST != 0,
        is_bundle: false,
        selects: false,
        destination: Destination::Program(sqe.addr2(), sqe.splice_fd_in as u16),
        iovecs,
        done: 0,
        selected: None,
        spurious: SpuriousWakeups::default(),
    })
}

impl Send {
    pub(super) fn try_issue(&mut self, cx: &mut IssueCx<'_>) -> Issue {
        if self.is_zero_copy
            && !cx.poll_fired
            && let Err(errno) = ZeroCopy::check_socket(cx.file.fd)
        {
            return errno.into();
        }
        let try_cx = TryCtx::of(cx);
        if let Some(issue) = self.poll_first(&try_cx) {
            return issue;
        }
        if let Err(errno) = self.check_buffer(cx) {
            return errno.into();
        }
        if self.selects
            && self.selected.is_none()
            && let Err(errno) = self.select(cx)
        {
            return no_buffer(cx.file.fd, errno);
        }
        let mut issue = self.send_now(try_cx);
        if self.is_bundle {
            issue = self.continue_bundle(issue, cx.poll_fired);
        }
        commit_or_recycle(&mut cx.ring.buf_groups, &mut self.selected, &mut issue, true);
        if let Some(selected) = &mut self.selected {
            // Unlike with receives, the buffer of a waiting send is used up whether it is sent or
            // not.
            selected.mark_used(self.done as u32);
        }
        issue
    }

    pub(super) fn registered_buffer(&self) -> Option<u16> {
        self.buffer
    }

    /// Checks before the first try that the data lies in its registered buffer, if it names one.
    fn check_buffer(&self, cx: &IssueCx<'_>) -> Result<(), Errno> {
        let Some(index) = self.buffer.filter(|_| !cx.poll_fired || self.is_poll_first) else { return Ok(()) };
        let whole = [Iovec { base: self.addr, len: self.len.into() }];
        check_data(cx, index, self.iovecs.as_deref().unwrap_or(&whole))
    }

    fn select(&mut self, cx: &mut IssueCx<'_>) -> Result<(), Errno> {
        if !cx.ring.buf_groups.exists(cx.buf_group) {
            return Err(Errno::ENOENT);
        }
        if cx.ring.buf_groups.is_list(cx.buf_group) {
            // As in Linux since 6.10: of a list, whole buffers are sent.
            self.cap = 0;
        }
        let mut chosen = if self.is_bundle {
            // Only the first transfer has a limit.
            cx.ring.buf_groups.select_bundle(cx.buf_group, BundleLimit::All(core::mem::take(&mut self.cap)))?
        } else {
            cx.ring.buf_groups.select(cx.buf_group, self.cap)?
        };
        chosen.keep_unused();
        self.iovecs = chosen.iovecs();
        self.addr = chosen.addr;
        self.len = chosen.len;
        self.selected = Some(chosen);
        Ok(())
    }

    /// Sends the next bundle after one that was sent at once, while there are buffers.
    fn continue_bundle(&mut self, issue: Issue, has_waited: bool) -> Issue {
        match issue {
            Issue::Complete(outcome) if outcome.res > 0 && !has_waited && !self.selected.as_ref().is_some_and(SelectedBuf::is_last) => {
                // The next bundle has its own length. Without buffers to select from it is empty.
                self.iovecs = None;
                self.len = 0;
                self.done = 0;
                Issue::More(outcome)
            }
            issue => issue,
        }
    }

    /// Bytes that a try moves at most, unless its buffers are not selected yet.
    pub(super) fn max_transfer(&self) -> Option<usize> {
        (!self.selects).then(|| self.left())
    }

    /// Whether it uses no buffer of the ring and ends with its first transfer.
    pub(super) fn is_lockless(&self) -> bool {
        !self.selects && !self.is_bundle && self.buffer.is_none()
    }

    fn poll_first(&self, cx: &TryCtx) -> Option<Issue> {
        if self.is_poll_first { poll_first(cx, POLLOUT, may_wait(self.msg_flags)) } else { None }
    }

    /// A try from the program's own buffer.
    pub(super) fn try_send(&mut self, cx: TryCtx) -> Issue {
        if self.is_zero_copy
            && let Err(errno) = ZeroCopy::check_socket(cx.fd)
        {
            return errno.into();
        }
        self.poll_first(&cx).unwrap_or_else(|| self.send_now(cx))
    }

    fn send_now(&mut self, cx: TryCtx) -> Issue {
        let fd = cx.fd;
        match self.send(fd, nonblocking(self.msg_flags)) {
            Err(Errno::EAGAIN) if may_wait(self.msg_flags) => self.spurious.on_eagain(&cx, POLLOUT, 0),
            Ok(n) if self.is_resumed_after(fd, n) => Issue::PollFirst(POLLOUT),
            res => Issue::Complete(self.outcome(res)),
        }
    }

    /// One system call for what is left.
    fn send(&self, fd: i32, flags: u32) -> Res {
        let (to, to_len) = match &self.destination {
            Destination::Program(addr, len) => (UserPtr::at(*addr), u32::from(*len)),
            Destination::Copied(addr) => (addr.ptr(), addr.len()),
        };
        match &self.iovecs {
            None => io::sendto(fd, UserPtr::at(self.addr).add(self.done), self.len as usize - self.done, flags, to, to_len),
            Some(iovecs) => {
                let iov = io::ptr_of_slice(iovecs).addr() as u64;
                let (name, iovlen) = (to.addr() as u64, iovecs.len() as u64);
                let header = io::Msghdr { name, namelen: to_len, iov, iovlen, ..io::Msghdr::default() };
                io::sendmsg(fd, io::ptr_of(&header), flags)
            }
        }
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
            if let Some(selected) = &mut self.selected {
                selected.mark_used(self.done as u32);
            }
        }
        is_resumed
    }

    /// The result, with the bytes of earlier tries. A short send is a failure only with
    /// `MSG_WAITALL`.
    fn outcome(&mut self, res: Res) -> Outcome {
        let is_failure = match res {
            Ok(n) => self.msg_flags & MSG_WAITALL != 0 && n < self.left(),
            Err(_) => true,
        };
        let total = match res {
            Ok(n) => Ok(self.done + n),
            Err(_) if self.done > 0 => Ok(self.done),
            error => error,
        };
        let mut outcome = Outcome { is_failure, ..Outcome::from(total) };
        if let Some(selected) = &mut self.selected {
            // All selected buffers return to the program, sent or not: as in the kernel, and unlike
            // with receives.
            if !matches!(res, Err(Errno::ENOTSOCK | Errno::EBADF | Errno::EAGAIN)) {
                outcome.flags |= selected.mark_used(total.map_or(selected.len, |n| n as u32));
            }
        }
        outcome
    }

    /// Sends, sleeping as needed.
    pub(super) fn run(&mut self, fd: i32) -> Outcome {
        loop {
            let res = blocking_call(fd, POLLOUT, may_wait(self.msg_flags), || self.send(fd, self.msg_flags));
            match res {
                Ok(n) if self.is_resumed_after(fd, n) => {}
                res => return self.outcome(res),
            }
        }
    }

    pub(super) fn import_args(&mut self) -> Result<(), Errno> {
        if let Destination::Program(addr, len) = self.destination
            && addr != 0
        {
            self.destination = Destination::Copied(SockAddr::read(addr, len.into())?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn send_refuses_unknown_flags_and_high_bits_of_the_address_length() {
        let cx = PrepCx { setup: 0, sqe_flags: 0, is_after_link: false, is_wide: false };
        assert!(prep(&Sqe { splice_fd_in: 0xffff, ioprio: 1, ..Sqe::default() }, &cx).is_ok());
        for bad in [
            Sqe { splice_fd_in: 0x1_0000, ..Sqe::default() },
            Sqe { ioprio: 1 << 6, ..Sqe::default() },
            Sqe { ioprio: 2, ..Sqe::default() },
        ] {
            assert_eq!(prep(&bad, &cx).err(), Some(Errno::EINVAL), "{bad:?}");
        }
    }
}
