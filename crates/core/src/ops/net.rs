//! `IORING_OP_ACCEPT, CONNECT, SEND, RECV, SENDMSG, RECVMSG, SEND_ZC, SENDMSG_ZC, RECV_ZC, SOCKET,
//! SHUTDOWN, BIND, LISTEN`: sockets.
//! Source:  io_uring_enter(2) and the pages of the system calls; behaviour of Linux 6.18
//!          io_uring/net.c, of 7.1 for RECV_ZC (not its code).
//! Issue:   tried without sleeping, then poll and a new try; SOCKET, SHUTDOWN, BIND, LISTEN inline
//!          or on a worker.
//! Errors:  EINVAL bad fields; ENOTSOCK; ENOBUFS no provided buffer; of RECV_ZC EPROTONOSUPPORT no
//!          TCP socket, ENOMEM no buffer, ENOSPC a full CQ; else those of the system calls.
//! Differs: during an accept a blocking listener is non-blocking for a moment: an accept(2) of
//!          another thread may return EAGAIN; an unreadable header or address is reported when a
//!          request outside of a chain is issued; POLL_FIRST on a file that is no socket is
//!          ENOTSOCK at once; SOCK_NONEMPTY is not set for a single receive that emptied a TCP
//!          stream which has ended, and is set for the end that the program's own shutdown(2) made;
//!          SEND from a list of provided buffers takes no more of a buffer than requested; a
//!          receive bundle with MSG_WAITALL keeps its first buffers, gets no more than it
//!          requested, and returns those that hold nothing unless others were selected after them
//!          (Linux 6.18 returns those of its first try only, and lets others receive over the
//!          rest); a receive that waits on a TCP socket whose SO_RCVLOWAT was raised after its
//!          first wait is not woken for less; RECV_ZC fills its buffers with what comes, however
//!          it was sent, and goes on when the program has returned buffers or read CQEs.
//! Tests:   liburing accept*.t, connect.t, send_recv*.t, recv-multishot.t, socket*.t, shutdown.t;
//!          ours cli/tests/net_ops.rs, cli/tests/recv_zc.rs.

mod accept;
mod attempt;
mod connect;
mod message;
mod nonblock;
mod recv;
mod recv_zc;
mod recvmsg;
mod send;
mod sendmsg;
mod socket;
mod socket_op;
mod zerocopy;

use super::issue::{Issue, IssueCx, OpFamily, PrepCx};
use super::outcome::Outcome;
use crate::ops::FilledBytes;
use crate::ring_resources::RingResources;
use crate::rsrc::buf_ring::SelectedBuf;
use attempt::TryCtx;
use socket::POLLIN;
use uringlet_abi::Sqe;
use uringlet_sys::Errno;
pub(crate) use zerocopy::notification;

/// A validated request of this family.
#[derive(Debug)]
pub(crate) enum NetOp {
    Accept(accept::Accept),
    Connect(connect::Connect),
    Send(send::Send),
    Recv(recv::Recv),
    Sendmsg(sendmsg::Sendmsg),
    Recvmsg(recvmsg::Recvmsg),
    RecvZc(recv_zc::RecvZc),
    Socket(socket_op::SocketOp),
}

/// Forwards the `prep` of an opcode to the module of its operation.
macro_rules! forward {
    ($($name:ident = $prep:path => $variant:ident;)*) => {
        $(pub(crate) fn $name(sqe: &Sqe, cx: &PrepCx) -> Result<NetOp, Errno> {
            $prep(sqe, cx).map(NetOp::$variant)
        })*
    };
}

forward! {
    prep_accept = accept::prep => Accept;
    prep_connect = connect::prep => Connect;
    prep_send = send::prep => Send;
    prep_send_zc = send::prep_zc => Send;
    prep_recv = recv::prep => Recv;
    prep_sendmsg = sendmsg::prep => Sendmsg;
    prep_sendmsg_zc = sendmsg::prep_zc => Sendmsg;
    prep_recvmsg = recvmsg::prep => Recvmsg;
    prep_recv_zc = recv_zc::prep => RecvZc;
    prep_socket = socket_op::prep_socket => Socket;
    prep_shutdown = socket_op::prep_shutdown => Socket;
    prep_bind = socket_op::prep_bind => Socket;
    prep_listen = socket_op::prep_listen => Socket;
}

impl NetOp {
    /// Whether it waits for something that no event of its socket tells.
    pub(crate) fn is_starved(&self) -> bool {
        matches!(self, Self::RecvZc(op) if op.is_starved())
    }
}

impl OpFamily for NetOp {
    fn filled(&self) -> Option<FilledBytes> {
        match self {
            Self::Recv(op) => op.filled(),
            Self::Recvmsg(op) => op.filled(),
            _ => None,
        }
    }

    /// Tries without sleeping.
    #[inline(always)]
    fn try_issue(&mut self, cx: &mut IssueCx<'_>) -> Issue {
        match self {
            Self::Accept(op) => op.try_issue(cx),
            Self::Connect(op) => op.try_issue(cx),
            Self::Send(op) => op.try_issue(cx),
            Self::Recv(op) => op.try_issue(cx),
            Self::Sendmsg(op) => op.try_issue(cx),
            Self::Recvmsg(op) => op.try_issue(cx),
            Self::RecvZc(op) => op.try_issue(cx),
            Self::Socket(_) => Issue::Blocks,
        }
    }

    /// As [`try_issue`](Self::try_issue), for requests that need no buffer and no table of the
    /// ring.
    fn try_unlocked(&mut self, fd: i32) -> Option<Issue> {
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
            Self::Accept(_) | Self::RecvZc(_) | Self::Socket(_) => None,
        }
    }

    /// The poll events of a plain receive into the program's own buffer.
    fn receive_events(&self) -> Option<u32> {
        match self {
            Self::Recv(op) if !op.selects && op.is_plain() => Some(POLLIN),
            _ => None,
        }
    }

    fn registered_buffer(&self) -> Option<u16> {
        match self {
            Self::Send(op) => op.registered_buffer(),
            Self::Recv(op) => op.registered_buffer(),
            Self::Sendmsg(op) => op.registered_buffer(),
            _ => None,
        }
    }

    /// Whether it uses no buffer of the ring and ends with its first transfer.
    fn is_lockless(&self) -> bool {
        match self {
            Self::Send(op) => op.is_lockless(),
            Self::Recv(op) => op.is_lockless(),
            Self::Recvmsg(op) => !op.selects,
            Self::Accept(op) => !op.is_multishot(),
            Self::Sendmsg(op) => op.is_lockless(),
            Self::RecvZc(_) => false,
            Self::Connect(_) | Self::Socket(_) => true,
        }
    }

    /// Bytes that a try moves at most, where that is known without one.
    fn max_transfer(&self) -> Option<usize> {
        match self {
            Self::Send(op) => op.max_transfer(),
            Self::Recv(op) => op.max_transfer(),
            Self::Accept(op) if !op.is_multishot() => Some(0),
            _ => None,
        }
    }

    /// Runs it, sleeping as needed.
    fn run(&mut self, fd: i32) -> Outcome {
        match self {
            Self::Accept(op) => op.run(fd),
            Self::Connect(op) => op.run(fd),
            Self::Send(op) => op.run(fd),
            Self::Recv(op) => op.run(fd),
            Self::Sendmsg(op) => op.run(fd),
            Self::Recvmsg(op) => op.run(fd),
            // Its file cannot be polled any more.
            Self::RecvZc(_) => Outcome::err(Errno::EBADFD),
            Self::Socket(op) => op.run(fd),
        }
    }

    /// After `run`, under the ring's lock: registers a new socket if that was requested.
    fn finish(&mut self, ring: &mut RingResources, outcome: Outcome) -> Outcome {
        match self {
            Self::Accept(op) => op.finish(ring, outcome),
            Self::Socket(op) => op.finish(ring, outcome),
            _ => outcome,
        }
    }

    /// Copies the arguments that the program may reuse once its SQE is consumed.
    fn import_args(&mut self) -> Result<(), Errno> {
        match self {
            Self::Send(op) => op.import_args(),
            Self::Sendmsg(op) => op.import_args(),
            Self::Recvmsg(op) => op.import_args(),
            _ => Ok(()),
        }
    }

    /// The provided buffer that the request holds.
    fn take_selected(&mut self) -> Option<SelectedBuf> {
        match self {
            Self::Send(op) => op.selected.take(),
            Self::Recv(op) => op.selected.take(),
            Self::Recvmsg(op) => op.selected.take(),
            _ => None,
        }
    }

    /// Bytes that an unfinished `MSG_WAITALL` request has moved: its result if it is cancelled now.
    fn bytes_done(&self) -> usize {
        match self {
            Self::Send(op) => op.done,
            Self::Recv(op) => op.done,
            Self::Sendmsg(op) => op.done,
            Self::Recvmsg(op) => op.done,
            _ => 0,
        }
    }
}
