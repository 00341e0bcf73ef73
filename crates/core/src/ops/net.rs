//! `IORING_OP_ACCEPT, CONNECT, SEND, RECV, SENDMSG, RECVMSG, SEND_ZC, SENDMSG_ZC, SOCKET, SHUTDOWN, BIND, LISTEN`: sockets.
//! Source:  io_uring_enter(2) and the system calls' own pages; behaviour of Linux 6.18 io_uring/net.c (not its code).
//! Issue:   tried without sleeping, then poll and again; SOCKET, SHUTDOWN, BIND, LISTEN by whoever may call them.
//! Errors:  EINVAL bad fields; ENOTSOCK; ENOBUFS no provided buffer; else those of the system calls.
//! Differs: while a blocking listener is accepted from it is non-blocking for a moment: an accept(2) of others may answer EAGAIN;
//!          a header or address that cannot be read is found when a request outside of chains is issued; POLL_FIRST of what is no socket is
//!          ENOTSOCK at once; SOCK_NONEMPTY is not said of a single receive that emptied a TCP stream which has ended, and is said
//!          of the end that the program's own shutdown(2) made;
//!          SEND from a list of provided buffers takes no more of a buffer than was asked for; a receive bundle with MSG_WAITALL keeps
//!          the buffers it began with, gets no more than it asked for, and gives back those that hold nothing unless others were taken after them
//!          (Linux 6.18 gives up those of its first try only, and lets others receive over the rest); a receive that waits on a TCP socket whose
//!          SO_RCVLOWAT was raised after its first wait is not told of less.
//! Tests:   liburing accept*.t, connect.t, send_recv*.t, recv-multishot.t, socket*.t, shutdown.t; ours cli/tests/net_ops.rs.

mod accept;
mod connect;
mod endpoint;
mod message;
mod nonblock;
mod recv;
mod recvmsg;
mod send;
mod sendmsg;
mod zerocopy;

use super::rw::check_iovecs;
use super::{Issue, IssueCx};
use crate::file::FileKind;
use crate::ops::Outcome;
use crate::ring_resources::RingResources;
use crate::rsrc::buf_ring::SelectedBuf;
pub(crate) use accept::prep as prep_accept;
use alloc::boxed::Box;
use alloc::vec;
pub(crate) use connect::prep as prep_connect;
pub(crate) use endpoint::{prep_bind, prep_listen, prep_shutdown, prep_socket};
pub(crate) use recv::prep as prep_recv;
pub(crate) use recvmsg::prep as prep_recvmsg;
pub(crate) use send::{prep as prep_send, prep_zc as prep_send_zc};
pub(crate) use sendmsg::{prep as prep_sendmsg, prep_zc as prep_sendmsg_zc};
use uringlet_abi::op_flags::SEND_VECTORIZED;
use uringlet_abi::register::Iovec;
use uringlet_sys::io::{self, MSG_DONTWAIT, MSG_WAITALL, O_NONBLOCK, Res};
use uringlet_sys::{Errno, UserPtr, fd_table, user};
use zerocopy::ZeroCopy;
pub(crate) use zerocopy::notification;

const POLLIN: u32 = 1;
const POLLPRI: u32 = 2;
const POLLOUT: u32 = 4;
const POLLERR: u32 = 8;
const POLLRDNORM: u32 = 0x40;

const AF_UNIX: i32 = 1;
const AF_INET: i32 = 2;
const AF_INET6: i32 = 10;
const SOCK_STREAM: i32 = 1;
const SOCK_SEQPACKET: i32 = 5;
const SOCK_NONBLOCK: u32 = 0o4000;
const SOCK_CLOEXEC: u32 = 0o2_000_000;
const MSG_OOB: u32 = 1;
const MSG_PEEK: u32 = 2;
const MSG_CTRUNC: u32 = 8;
const MSG_TRUNC: u32 = 0x20;
const MSG_ERRQUEUE: u32 = 0x2000;

/// Size of `struct sockaddr_storage`.
const ADDR_MAX: usize = 128;
const MAX_IOVECS: u64 = 1024;

/// A validated request of this family.
#[derive(Debug)]
pub(crate) enum NetOp {
    Accept(accept::Accept),
    Connect(connect::Connect),
    Send(send::Send),
    Recv(recv::Recv),
    Sendmsg(sendmsg::Sendmsg),
    Recvmsg(recvmsg::Recvmsg),
    Endpoint(endpoint::Endpoint),
}

impl NetOp {
    /// Tries without sleeping.
    #[inline]
    pub(super) fn try_issue(&mut self, cx: &mut IssueCx<'_>) -> Issue {
        match self {
            Self::Accept(op) => op.try_issue(cx),
            Self::Connect(op) => op.try_issue(cx),
            Self::Send(op) => op.try_issue(cx),
            Self::Recv(op) => op.try_issue(cx),
            Self::Sendmsg(op) => op.try_issue(cx),
            Self::Recvmsg(op) => op.try_issue(cx),
            Self::Endpoint(_) => Issue::Blocks,
        }
    }

    /// As [`try_issue`](Self::try_issue), for what needs no buffer and no table of the ring.
    pub(super) fn try_unlocked(&mut self, fd: i32) -> Option<Issue> {
        if !self.is_lockless() {
            return None;
        }
        let cx = TryCtx { fd, poll_fired: false, short_read_drains: false };
        match self {
            Self::Send(op) => Some(op.try_send(cx)),
            Self::Recv(op) => Some(op.try_receive(cx)),
            Self::Sendmsg(op) => Some(op.try_send(cx)),
            Self::Recvmsg(op) => Some(op.try_receive(cx)),
            Self::Connect(op) => Some(op.try_connect(fd)),
            Self::Accept(_) | Self::Endpoint(_) => None,
        }
    }

    /// The poll events that it waits for if it is a plain receive into its own buffer.
    pub(super) fn receive_events(&self) -> Option<u32> {
        match self {
            Self::Recv(op) if !op.selects && op.is_plain() => Some(POLLIN),
            _ => None,
        }
    }

    /// Whether it needs no buffer of the ring's, and ends with its first transfer.
    pub(super) fn is_lockless(&self) -> bool {
        match self {
            Self::Send(op) => op.is_lockless(),
            Self::Recv(op) => !op.selects,
            Self::Recvmsg(op) => !op.selects,
            Self::Accept(op) => !op.is_multishot(),
            Self::Sendmsg(op) => op.is_lockless(),
            Self::Connect(_) | Self::Endpoint(_) => true,
        }
    }

    /// Bytes that a try moves at most, where that is known without one.
    pub(super) fn max_transfer(&self) -> Option<usize> {
        match self {
            Self::Send(op) => op.max_transfer(),
            Self::Recv(op) => op.max_transfer(),
            Self::Accept(op) if !op.is_multishot() => Some(0),
            _ => None,
        }
    }

    /// Does it, sleeping as needed.
    pub(super) fn run(&mut self, fd: i32) -> Outcome {
        match self {
            Self::Accept(op) => op.run(fd),
            Self::Connect(op) => op.run(fd),
            Self::Send(op) => op.run(fd),
            Self::Recv(op) => op.run(fd),
            Self::Sendmsg(op) => op.run(fd),
            Self::Recvmsg(op) => op.run(fd),
            Self::Endpoint(op) => op.run(fd),
        }
    }

    /// After `run`, under the ring's lock: a new socket becomes a registered file if that was asked for.
    pub(super) fn finish(&mut self, ring: &mut RingResources, outcome: Outcome) -> Outcome {
        match self {
            Self::Accept(op) => op.finish(ring, outcome),
            Self::Endpoint(op) => op.finish(ring, outcome),
            _ => outcome,
        }
    }

    /// Copies what the program may reuse once its SQE is consumed.
    pub(super) fn import_args(&mut self) -> Result<(), Errno> {
        match self {
            Self::Send(op) => op.import_args(),
            Self::Sendmsg(op) => op.import_args(),
            Self::Recvmsg(op) => op.import_args(),
            _ => Ok(()),
        }
    }

    /// The provided buffer that the request holds.
    pub(super) fn take_selected(&mut self) -> Option<SelectedBuf> {
        match self {
            Self::Send(op) => op.selected.take(),
            Self::Recv(op) => op.selected.take(),
            Self::Recvmsg(op) => op.selected.take(),
            _ => None,
        }
    }

    /// Bytes that an unfinished `MSG_WAITALL` request has moved: what its CQE says if it is cancelled now.
    pub(crate) fn bytes_done(&self) -> usize {
        match self {
            Self::Send(op) => op.done,
            Self::Recv(op) => op.done,
            Self::Sendmsg(op) => op.done,
            Self::Recvmsg(op) => op.done,
            _ => 0,
        }
    }
}

/// Why a file cannot be waited for as a socket (`*_POLL_FIRST`).
fn must_be_socket(fd: i32) -> Result<(), Errno> {
    let kind = FileKind::refresh(fd);
    if kind.is_bad() {
        return Err(Errno::EBADF);
    }
    if kind.is_socket() { Ok(()) } else { Err(Errno::ENOTSOCK) }
}

/// The first try of a `*_POLL_FIRST` request: it waits for poll, or fails if it may not wait.
fn poll_first(cx: &TryCtx, mask: u32, may_wait: bool) -> Option<Issue> {
    if cx.poll_fired {
        return None;
    }
    Some(match must_be_socket(cx.fd) {
        Err(errno) => errno.into(),
        Ok(()) if may_wait => Issue::PollFirst(mask),
        Ok(()) => Errno::EAGAIN.into(),
    })
}

/// The poll events that a receive waits for.
fn receive_mask(msg_flags: u32) -> u32 {
    if msg_flags & MSG_ERRQUEUE != 0 {
        return POLLRDNORM | POLLERR | POLLPRI;
    }
    if msg_flags & MSG_OOB != 0 { POLLIN | POLLPRI } else { POLLIN }
}

/// Tries that found nothing although poll had said "ready", one after the other.
#[derive(Debug, Default)]
struct SpuriousWakeups(u8);

impl SpuriousWakeups {
    /// So many, and poll is not asked any longer.
    const MOST: u8 = 16;

    /// A try found nothing. Usually poll says when to try again; but there is what it does not know of (the room in an
    /// unconnected datagram socket's receiver, a datagram socket that was shut down): a thread waits for that.
    fn on_eagain(&mut self, cx: &TryCtx, mask: u32, msg_flags: u32) -> Issue {
        if !may_wait(msg_flags) {
            return Errno::EAGAIN.into();
        }
        let wants_else = msg_flags & (MSG_ERRQUEUE | MSG_OOB) != 0;
        if !cx.poll_fired && !wants_else {
            return Issue::WouldBlock(mask);
        }
        let is_ready = io::poll_now(cx.fd, mask).is_ok_and(|events| events != 0);
        if wants_else && is_ready {
            // It is ready for something else, and would be again and again.
            return Errno::EAGAIN.into();
        }
        self.0 = if is_ready { self.0 + 1 } else { 0 };
        match self.0 {
            0 => Issue::WouldBlock(mask),
            1..=Self::MOST => Issue::PollFirst(mask),
            _ => Issue::Blocks,
        }
    }
}

/// A request that goes on is never a thread's that waits: it stays armed.
fn stay_armed(issue: Issue, mask: u32) -> Issue {
    if matches!(issue, Issue::Blocks) { Issue::WouldBlock(mask) } else { issue }
}

/// What a try is told.
#[derive(Clone, Copy, Debug)]
struct TryCtx {
    fd: i32,
    /// A poll for the request has fired.
    poll_fired: bool,
    /// A receive that gets less than it asks for has emptied the stream.
    short_read_drains: bool,
}

impl TryCtx {
    fn of(cx: &IssueCx<'_>) -> Self {
        Self { fd: cx.file.fd, poll_fired: cx.poll_fired, short_read_drains: false }
    }

    /// Of a receive.
    fn receive(cx: &mut IssueCx<'_>, msg_flags: u32) -> Self {
        let is_plain = msg_flags & (MSG_PEEK | MSG_OOB | MSG_ERRQUEUE) == 0;
        Self { short_read_drains: is_plain && cx.ring.short_read_drains(cx.file.fd), ..Self::of(cx) }
    }

    /// Whether a receive need not be tried before poll says so.
    fn is_known_empty(&self, cx: &mut IssueCx<'_>, msg_flags: u32) -> bool {
        self.short_read_drains && !self.poll_fired && may_wait(msg_flags) && cx.ring.known_empty(self.fd)
    }
}

/// Why no buffer could be selected: what is no socket is told first.
fn no_buffer(fd: i32, errno: Errno) -> Issue {
    must_be_socket(fd).err().unwrap_or(errno).into()
}

/// Makes a call that would sleep on a blocking socket answer `EAGAIN` or `EINPROGRESS` instead.
///
/// There is no flag for that on accept(2) and connect(2), so the open file is non-blocking for the time of the call.
/// Others who call on it in that moment may see `EAGAIN`; whoever sleeps in a call already does not.
fn with_nonblock(fd: i32, call: impl Fn() -> Res) -> Res {
    let flags = io::file_flags(fd)?;
    if flags & O_NONBLOCK != 0 {
        return call();
    }
    io::set_file_flags(fd, flags | O_NONBLOCK)?;
    let result = call();
    let _ = io::set_file_flags(fd, flags);
    result
}

/// Makes a call that may sleep, even on a non-blocking socket: it waits for `mask` then, as io-wq does. `EAGAIN` if poll
/// says "ready" for ever of what is not.
fn blocking_call(fd: i32, mask: u32, may_wait: bool, mut call: impl FnMut() -> Res) -> Res {
    for _ in 0..SpuriousWakeups::MOST {
        match call() {
            Err(Errno::EAGAIN) if may_wait => io::poll_wait(fd, mask)?,
            other => return other,
        };
    }
    call()
}

/// Whether a short transfer with `MSG_WAITALL` is taken up again: a datagram is not, nor what may not wait.
fn is_resumable(fd: i32, msg_flags: u32) -> bool {
    msg_flags & (MSG_WAITALL | MSG_DONTWAIT) == MSG_WAITALL
        && matches!(io::socket_option(fd, io::SO_TYPE), Ok(SOCK_STREAM | SOCK_SEQPACKET))
}

/// What is known of a socket about what else can be received from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backlog {
    /// Nothing, without another receive: datagrams.
    Unknown,
    /// Whether a receive would answer at once, if only "end of file".
    Tcp,
    /// How many bytes there are.
    UnixStream,
}

impl Backlog {
    fn of(fd: i32) -> Self {
        match (io::socket_option(fd, io::SO_TYPE), io::socket_option(fd, io::SO_DOMAIN)) {
            (Ok(SOCK_STREAM), Ok(AF_INET | AF_INET6)) => Self::Tcp,
            (Ok(SOCK_STREAM), Ok(AF_UNIX)) => Self::UnixStream,
            _ => Self::Unknown,
        }
    }

    /// Whether more waits after `n` of at most `wanted` bytes were received.
    fn has_more(self, cx: &TryCtx, n: usize, wanted: usize) -> bool {
        let fd = cx.fd;
        match self {
            Self::Unknown => false,
            Self::Tcp if n < wanted && cx.short_read_drains => false,
            Self::Tcp => io::poll_now(fd, POLLIN).is_ok_and(|events| events & POLLIN != 0),
            // Who got less than he asked for has emptied the stream.
            Self::UnixStream => n >= wanted && io::bytes_readable(fd).is_ok_and(|n| n > 0),
        }
    }
}

/// Whether a single receive of `n` of at most `wanted` bytes is told with `IORING_CQE_F_SOCK_NONEMPTY`.
///
/// One that got less than it asked for has emptied a stream: only one that was filled is worth the system calls.
fn is_nonempty(fd: i32, n: usize, wanted: usize, msg_flags: u32) -> bool {
    if n == 0 && wanted > 0 {
        return Backlog::of(fd) == Backlog::Tcp;
    }
    (n >= wanted || msg_flags & MSG_PEEK != 0) && io::bytes_readable(fd).is_ok_and(|n| n > 0) && Backlog::of(fd) != Backlog::Unknown
}

/// Copies iovecs, as the system calls would take them.
fn read_iovecs(addr: u64, n: usize) -> Result<Box<[Iovec]>, Errno> {
    let mut iovecs = vec![Iovec::default(); n].into_boxed_slice();
    user::read_slice(&mut iovecs, UserPtr::at(addr))?;
    check_iovecs(&iovecs)?;
    Ok(iovecs)
}

fn iovec_bytes(iovecs: &[Iovec]) -> usize {
    iovecs.iter().map(|v| v.len as usize).fold(0, usize::saturating_add)
}

/// The flags of a try.
fn nonblocking(msg_flags: u32) -> u32 {
    msg_flags | MSG_DONTWAIT
}

/// Whether the program leaves a request waiting at all.
fn may_wait(msg_flags: u32) -> bool {
    msg_flags & MSG_DONTWAIT == 0
}

/// A fresh descriptor's number may have been another file's that was closed unseen.
fn invalidate_file_kind(fd: i32) {
    if !fd_table::is_unused(fd) {
        fd_table::forget_kind(fd);
    }
}
