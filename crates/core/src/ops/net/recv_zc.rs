//! `IORING_OP_RECV_ZC`: a multishot receive into buffers of an area (`rsrc::zcrx`).

use super::attempt::{TryCtx, poll_any_first};
use super::socket::{MSG_PEEK, POLLIN};
use crate::ops::issue::{Issue, IssueCx, PrepCx, unused};
use crate::ops::outcome::Outcome;
use crate::ops::turn::Turn;
use crate::rsrc::zcrx::{BUFFER, ZcrxInstance};
use alloc::vec::Vec;
use core::num::NonZeroU32;
use uringlet_abi::op_flags::{RECV_MULTISHOT, RECVSEND_POLL_FIRST};
use uringlet_abi::register::Iovec;
use uringlet_abi::{Cqe, Sqe, cqe};
use uringlet_sys::io::{self, MSG_DONTWAIT, Msghdr};
use uringlet_sys::{Errno, UserPtr};

/// Most buffers of one system call.
const MOST_BUFFERS: usize = 16;

/// A request to receive.
#[derive(Debug)]
pub(crate) struct RecvZc {
    /// The instance's id.
    instance: u32,
    /// Bytes after which the request ends, if there is such a limit.
    left: Option<NonZeroU32>,
    is_poll_first: bool,
    turn: Turn,
    /// It waits for buffers, or for room in the CQ: how its socket was when that began.
    starved: Option<SocketState>,
}

/// The state of a socket, which tells a later event from one that was under way already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SocketState {
    /// Bytes in the queue.
    queued: Option<i32>,
    /// The poll events of an end and of an error.
    events: Option<u32>,
}

impl SocketState {
    fn of(fd: i32) -> Self {
        const POLLERR: u32 = 8;
        const POLLRDHUP: u32 = 0x2000;
        Self { queued: io::bytes_readable(fd).ok(), events: io::poll_now(fd, POLLRDHUP | POLLERR).ok() }
    }
}

/// What one system call came to.
enum Received {
    /// So many bytes, in these buffers.
    Data(usize, Vec<u32>),
    /// There is data, and no buffer for it.
    NoBuffer,
    End,
    Nothing,
}

pub(crate) fn prep(sqe: &Sqe, _: &PrepCx) -> Result<RecvZc, Errno> {
    unused(&[sqe.addr2(), sqe.addr, sqe.addr3, sqe.op_flags.into()])?;
    if sqe.ioprio & !(RECVSEND_POLL_FIRST | RECV_MULTISHOT) != 0 || sqe.ioprio & RECV_MULTISHOT == 0 {
        return Err(Errno::EINVAL);
    }
    Ok(RecvZc {
        instance: sqe.file_index(),
        left: NonZeroU32::new(sqe.len),
        is_poll_first: sqe.ioprio & RECVSEND_POLL_FIRST != 0,
        turn: Turn::default(),
        starved: None,
    })
}

impl RecvZc {
    /// Whether it waits for what no event of its socket tells.
    pub(super) fn is_starved(&self) -> bool {
        self.starved.is_some()
    }

    /// Receives until the socket is empty, the turn is over, or there are no more buffers or no
    /// room for CQEs. It waits for these until there is more of the stream: then their lack is an
    /// error.
    pub(super) fn try_issue(&mut self, cx: &mut IssueCx<'_>) -> Issue {
        if self.is_poll_first
            && let Some(issue) = poll_any_first(&TryCtx::of(cx), POLLIN, true)
        {
            return issue;
        }
        if (!cx.poll_fired || self.is_poll_first)
            && let Err(errno) = must_be_tcp(cx.file.fd)
        {
            return errno.into();
        }
        let starved = self.starved.take();
        let mut has_received = false;
        loop {
            if let Some(issue) = self.turn.answer(POLLIN) {
                return issue;
            }
            match self.step(cx) {
                Ok(Some(issue)) => return issue,
                Ok(None) => has_received = true,
                Err(errno @ (Errno::ENOMEM | Errno::ENOSPC)) => {
                    let now = SocketState::of(cx.file.fd);
                    return if has_received || starved == Some(now) { self.starve(cx, now) } else { errno.into() };
                }
                Err(errno) => return errno.into(),
            }
        }
    }

    /// One system call. `None`: there may be more.
    ///
    /// # Errors
    /// `ENOMEM` no buffer, `ENOSPC` no room for a CQE, but data; else those of recvmsg(2).
    fn step(&mut self, cx: &mut IssueCx<'_>) -> Result<Option<Issue>, Errno> {
        let fd = cx.file.fd;
        let room = cx.ring.big_room();
        let shared = cx.ring.zcrx.get(self.instance).ok_or(Errno::EINVAL)?;
        let mut instance = shared.lock();
        let limit = self.left.map_or(usize::MAX, |left| left.get() as usize);
        let most = MOST_BUFFERS.min(room).min(limit.div_ceil(BUFFER as usize));
        match receive(&mut instance, fd, most, limit)? {
            Received::Nothing => Ok(Some(Issue::WouldBlock(POLLIN))),
            // It breaks a chain, as in the kernel.
            Received::End => Ok(Some(Issue::Complete(Outcome { is_failure: true, ..Outcome::ok(0) }))),
            Received::NoBuffer => Err(if room == 0 && instance.has_free() { Errno::ENOSPC } else { Errno::ENOMEM }),
            Received::Data(n, buffers) => {
                post(cx, &mut instance, n, &buffers);
                self.turn.go_on();
                Ok(self.reaches_limit(n).then(|| Issue::Complete(Outcome::ok(0))))
            }
        }
    }

    /// Waits until the program has returned buffers, or read CQEs (`submit::zcrx`).
    fn starve(&mut self, cx: &mut IssueCx<'_>, now: SocketState) -> Issue {
        self.starved = Some(now);
        cx.ring.zcrx.note_starved(self.instance);
        Issue::WouldBlock(POLLIN)
    }

    fn reaches_limit(&mut self, n: usize) -> bool {
        let Some(left) = self.left else { return false };
        self.left = NonZeroU32::new(left.get().saturating_sub(u32::try_from(n).unwrap_or(u32::MAX)));
        self.left.is_none()
    }
}

/// # Errors
/// `EBADF`, `ENOTSOCK`; `EPROTONOSUPPORT` another kind of socket.
fn must_be_tcp(fd: i32) -> Result<(), Errno> {
    const IPPROTO_TCP: i32 = 6;
    match io::socket_option(fd, io::SO_PROTOCOL)? {
        IPPROTO_TCP => Ok(()),
        _ => Err(Errno::EPROTONOSUPPORT),
    }
}

/// Receives at most `limit` bytes into at most `most` buffers.
fn receive(instance: &mut ZcrxInstance, fd: i32, most: usize, limit: usize) -> Result<Received, Errno> {
    let buffers = instance.take(most);
    if buffers.is_empty() {
        return peek(fd);
    }
    let mut left = limit;
    let iovecs: Vec<Iovec> = buffers
        .iter()
        .map(|&buffer| {
            let len = left.min(BUFFER as usize);
            left -= len;
            Iovec { base: instance.address(buffer).addr() as u64, len: len as u64 }
        })
        .collect();
    let (iov, iovlen) = (io::ptr_of_slice(&iovecs).addr() as u64, iovecs.len() as u64);
    let mut header = Msghdr { iov, iovlen, ..Msghdr::default() };
    let result = io::recvmsg(fd, io::ptr_of_mut(&mut header), MSG_DONTWAIT);
    let used = result.unwrap_or(0).div_ceil(BUFFER as usize).min(buffers.len());
    instance.put_back(&buffers[used..]);
    match result {
        Ok(0) => Ok(Received::End),
        Ok(n) => Ok(Received::Data(n, buffers[..used].into())),
        Err(Errno::EAGAIN) => Ok(Received::Nothing),
        Err(errno) => Err(errno),
    }
}

/// What a receive would find.
fn peek(fd: i32) -> Result<Received, Errno> {
    let mut byte = 0_u8;
    match io::recvfrom(fd, io::ptr_of_mut(&mut byte), 1, MSG_PEEK | MSG_DONTWAIT, UserPtr::NULL, UserPtr::NULL) {
        Ok(0) => Ok(Received::End),
        Ok(_) => Ok(Received::NoBuffer),
        Err(Errno::EAGAIN) => Ok(Received::Nothing),
        Err(errno) => Err(errno),
    }
}

/// A CQE for each buffer: its offset, and the bytes in it.
fn post(cx: &mut IssueCx<'_>, instance: &mut ZcrxInstance, mut bytes: usize, buffers: &[u32]) {
    for &buffer in buffers {
        let offset = instance.give(buffer);
        let len = u32::try_from(bytes).map_or(BUFFER, |bytes| bytes.min(BUFFER));
        bytes -= len as usize;
        let cqe = Cqe { user_data: cx.user_data, res: len.cast_signed(), flags: cqe::MORE };
        if uringlet_sys::trace::is_on() {
            cx.ring.trace_shot(cx.traced_as, uringlet_abi::Opcode::RecvZc, cqe);
        }
        cx.ring.post_big(cqe, [offset, 0]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receive_is_multishot_and_has_no_buffer_of_its_own() {
        let good = Sqe { ioprio: RECV_MULTISHOT, len: 3, splice_fd_in: 1, ..Sqe::default() };
        let op = prep(&good, &PrepCx::default()).unwrap();
        assert_eq!((op.instance, op.left.map(NonZeroU32::get)), (1, Some(3)));
        for bad in [
            Sqe { ioprio: 0, ..good },
            Sqe { ioprio: RECV_MULTISHOT | 4, ..good },
            Sqe { addr: 1, ..good },
            Sqe { off: 1, ..good },
            Sqe { addr3: 1, ..good },
            Sqe { op_flags: 1, ..good },
        ] {
            assert_eq!(prep(&bad, &PrepCx::default()).err(), Some(Errno::EINVAL), "{bad:?}");
        }
    }
}
