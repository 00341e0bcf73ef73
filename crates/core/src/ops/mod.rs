//! What each opcode does. An op only *answers*: it never names io-wq, the poller or the submitter.
//!
//! Two phases, as in the kernel. `prep` reads and validates the SQE once: every `EINVAL` of a malformed SQE comes from
//! there. Then the op is issued, perhaps several times:
//! - [`Op::try_issue`] under the ring's lock: it must not sleep;
//! - [`Op::run`] without the lock, on the caller's thread or on a worker: it may.

pub(crate) mod buffers;
pub(crate) mod cancel;
pub(crate) mod fds;
pub(crate) mod fs;
pub(crate) mod futex;
pub(crate) mod hint;
pub(crate) mod msg_ring;
pub(crate) mod net;
pub(crate) mod nop;
mod outcome;
pub(crate) mod poll;
pub(crate) mod rw;
pub(crate) mod splice;
pub(crate) mod stream;
pub(crate) mod sync;
pub(crate) mod table;
pub(crate) mod timeout;
pub(crate) mod uring_cmd;
pub(crate) mod waitid;

use crate::file::FileKind;
use crate::ring_resources::RingResources;
use crate::throttle::Throttled;
use alloc::boxed::Box;
use uringlet_abi::Sqe;
use uringlet_sys::Errno;

pub(crate) use outcome::{Notification, Outcome};
pub(crate) use table::{Inline, OPCODES};

/// What issuing answered.
#[derive(Debug)]
pub(crate) enum Issue {
    /// Done.
    Complete(Outcome),
    /// Multishot: a CQE with `F_MORE` now, then issue again.
    More(Outcome),
    /// Tried, or looked at, and found nothing: issue again when the file has one of these poll events.
    WouldBlock(u32),
    /// As `WouldBlock`, but the file may be ready already.
    PollFirst(u32),
    /// Needs a thread that may sleep in [`Op::run`].
    Blocks,
    /// Is expected not to sleep in [`Op::run`]: a write to the page cache.
    RunInline,
    /// Has to wait: too many pages are dirty.
    Throttled(Throttled),
    /// Belongs to the kernel's AIO.
    Aio,
    /// Acts on the ring or on other requests: `submit` knows how (poll, timeout, cancel, files and buffers updates).
    RingOp,
}

impl From<Result<usize, Errno>> for Issue {
    fn from(res: Result<usize, Errno>) -> Self {
        Self::Complete(res.into())
    }
}

impl From<Errno> for Issue {
    fn from(errno: Errno) -> Self {
        Self::Complete(Outcome::err(errno))
    }
}

/// A file as an op sees it while it is issued.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpFile {
    /// The number to use.
    pub(crate) fd: i32,
    /// Whether the number is the engine's own (a registered file).
    pub(crate) is_fixed: bool,
}

impl OpFile {
    /// What sort of file it is (cached).
    pub(crate) fn kind(self) -> FileKind {
        FileKind::of(self.fd)
    }
}

/// What an op may use while it is issued under the ring's lock.
#[derive(Debug)]
pub(crate) struct IssueCx<'a> {
    pub(crate) ring: &'a mut RingResources,
    /// The resolved file; fd -1 where the op has none.
    pub(crate) file: OpFile,
    /// `IOSQE_*` of the request.
    pub(crate) sqe_flags: u8,
    /// The group to select a buffer from, if `IOSQE_BUFFER_SELECT` is set.
    pub(crate) buf_group: u16,
    /// A poll for this request has fired: the file was ready a moment ago.
    pub(crate) poll_fired: bool,
}

/// A typed, validated operation.
#[derive(Debug)]
pub(crate) enum Op {
    Nop(nop::Nop),
    Rw(rw::Rw),
    Sync(sync::SyncOp),
    // Boxed: most requests never leave the submitter's stack, and move cheaply only while they are small.
    Fs(Box<fs::FsOp>),
    Splice(Box<splice::Splice>),
    Net(Box<net::NetOp>),
    Stream(Box<stream::StreamOp>),
    MsgRing(Box<msg_ring::MsgRing>),
    Fds(fds::FdsOp),
    Poll(poll::PollOp),
    Timeout(timeout::TimeoutOp),
    Cancel(cancel::CancelOp),
    Buffers(buffers::BuffersOp),
    Cmd(uring_cmd::CmdOp),
    Waitid(waitid::Waitid),
    Futex(futex::FutexOp),
    /// With a worker at the moment.
    InFlight,
    /// `prep` refused it: what a chain says of it when it fails.
    Malformed(Errno),
}

impl Op {
    pub(crate) fn fs(op: fs::FsOp) -> Self {
        Self::Fs(Box::new(op))
    }

    pub(crate) fn splice(op: splice::Splice) -> Self {
        Self::Splice(Box::new(op))
    }

    pub(crate) fn net(op: net::NetOp) -> Self {
        Self::Net(Box::new(op))
    }

    pub(crate) fn stream(op: stream::StreamOp) -> Self {
        Self::Stream(Box::new(op))
    }

    /// Tries without sleeping, under the ring's lock.
    #[inline]
    pub(crate) fn try_issue(&mut self, cx: &mut IssueCx<'_>) -> Issue {
        match self {
            Self::Nop(op) => op.try_issue(cx),
            Self::Rw(op) => op.try_issue(cx),
            Self::Sync(op) => op.try_issue(cx),
            Self::Fs(op) => op.try_issue(cx),
            Self::Splice(op) => op.try_issue(cx),
            Self::Net(op) => op.try_issue(cx),
            Self::Stream(op) => op.try_issue(cx),
            Self::Fds(op) => op.try_issue(cx),
            Self::Futex(op) => op.try_issue(),
            Self::Poll(_) | Self::Timeout(_) | Self::Cancel(_) | Self::Buffers(_) | Self::MsgRing(_) | Self::Cmd(_) | Self::Waitid(_) => {
                Issue::RingOp
            }
            Self::InFlight | Self::Malformed(_) => unreachable!("a request is issued by whoever owns its op"),
        }
    }

    /// As [`try_issue`](Self::try_issue), but without the ring's lock. `None`: it takes something of the ring's.
    pub(crate) fn try_unlocked(&mut self, fd: i32) -> Option<Issue> {
        match self {
            Self::Net(op) => op.try_unlocked(fd),
            _ => None,
        }
    }

    /// The poll events that it waits for if it is a plain receive of a stream's bytes.
    pub(crate) fn receive_events(&self) -> Option<u32> {
        match self {
            Self::Net(op) => op.receive_events(),
            Self::Rw(op) => op.receive_events(),
            _ => None,
        }
    }

    /// Whether [`run`](Self::run) does all of it, from the start.
    pub(crate) fn is_lockless(&self) -> bool {
        match self {
            Self::Net(op) => op.is_lockless(),
            Self::Stream(op) => op.is_lockless(),
            _ => true,
        }
    }

    /// Whether it may be issued with a worker at all (used by `submit` to honour `IOSQE_ASYNC`).
    pub(crate) fn may_run(&self) -> bool {
        // A splice looks up its registered input first, and goes to a worker anyway.
        !matches!(
            self,
            Self::Splice(_)
                | Self::Nop(_)
                | Self::Poll(_)
                | Self::Timeout(_)
                | Self::Cancel(_)
                | Self::Buffers(_)
                | Self::MsgRing(_)
                | Self::Fds(_)
                | Self::Cmd(_)
                | Self::Waitid(_)
                | Self::Futex(_)
                | Self::InFlight
                | Self::Malformed(_)
        )
    }

    /// Does it, sleeping if need be, without the ring's lock. `fd` is the resolved file.
    #[inline]
    pub(crate) fn run(&mut self, fd: i32) -> Outcome {
        match self {
            Self::Rw(op) => op.run(fd),
            Self::Sync(op) => op.run(fd),
            Self::Fs(op) => op.run(fd),
            Self::Splice(op) => op.run(fd),
            Self::Net(op) => op.run(fd),
            Self::Cmd(op) => op.run(),
            Self::Stream(op) => op.run(fd),
            // Where there is no worker, and none can be started, nobody can sleep for it.
            Self::Waitid(_) | Self::Futex(_) => Outcome::err(Errno::EAGAIN),
            Self::Nop(_)
            | Self::Poll(_)
            | Self::Timeout(_)
            | Self::Cancel(_)
            | Self::Buffers(_)
            | Self::MsgRing(_)
            | Self::Fds(_)
            | Self::InFlight
            | Self::Malformed(_) => {
                unreachable!("only ops that answer Blocks are run")
            }
        }
    }

    /// As [`run`](Self::run), where a return after the system call would be dear.
    #[inline(always)]
    pub(crate) fn run_in_place(&mut self, fd: i32) -> Outcome {
        match self {
            Self::Rw(op) => op.run_in_place(fd),
            op => op.run(fd),
        }
    }

    /// After [`run`](Self::run), under the ring's lock: what needs the ring's tables. The answer is what the program is told.
    #[inline]
    pub(crate) fn finish(&mut self, ring: &mut RingResources, outcome: Outcome) -> Outcome {
        match self {
            Self::Fs(op) => op.finish(ring, outcome),
            Self::Net(op) => op.finish(ring, outcome),
            _ => outcome,
        }
    }

    /// Before the op outlives its submission: copies what the program may reuse once its SQE is consumed (iovecs,
    /// paths, message headers; `IORING_FEAT_SUBMIT_STABLE`).
    pub(crate) fn import_args(&mut self) -> Result<(), Errno> {
        match self {
            Self::Rw(op) => op.import_args(),
            Self::Fs(op) => op.import_args(),
            Self::Net(op) => op.import_args(),
            _ => Ok(()),
        }
    }

    /// Takes from the ring's tables what a worker will need: it has no access to them.
    pub(crate) fn prepare_for_worker(&mut self, cx: &mut IssueCx<'_>) -> Result<(), Errno> {
        match self {
            Self::Rw(op) => op.prepare_for_worker(cx),
            _ => Ok(()),
        }
    }

    /// Whether it writes, and through the page cache if the file does.
    pub(crate) fn is_write(&self) -> bool {
        matches!(self, Self::Rw(op) if !op.is_read())
    }

    /// Whether it is a read: not of a socket, whose receive is another opcode.
    pub(crate) fn is_read(&self) -> bool {
        matches!(self, Self::Rw(op) if op.is_read())
    }

    /// Bytes that a transfer in several parts has moved so far, if any.
    pub(crate) fn bytes_done(&self) -> Option<usize> {
        match self {
            Self::Net(op) => Some(op.bytes_done()).filter(|&n| n > 0),
            Self::Rw(op) => Some(op.bytes_done()).filter(|&n| n > 0),
            _ => None,
        }
    }

    /// A provided buffer that the request took and did not use goes back to its group: on failure and on cancel.
    pub(crate) fn selected_buffer(&mut self) -> Option<crate::rsrc::buf_ring::SelectedBuf> {
        match self {
            Self::Rw(op) => op.take_selected(),
            Self::Net(op) => op.take_selected(),
            Self::Stream(op) => op.take_selected(),
            _ => None,
        }
    }
}

/// What `prep` may know of the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrepCx {
    /// `IORING_SETUP_*`.
    pub(crate) setup: u32,
    /// `IOSQE_*` of the SQE.
    pub(crate) sqe_flags: u8,
    /// Whether a request stands before this one in its chain (LINK_TIMEOUT needs it).
    pub(crate) is_after_link: bool,
}

/// Reads and validates an SQE, as the table keeps it: it writes the op where it will stay. What was stored a moment ago in
/// small pieces is slow to copy in large ones.
pub(crate) type PrepInPlace = fn(&Sqe, &PrepCx, &mut Op) -> Result<(), Errno>;

/// As a family writes it.
#[cfg(test)]
pub(crate) type Prep = fn(&Sqe, &PrepCx) -> Result<Op, Errno>;

/// `Err(EINVAL)` if any of the fields an opcode does not use is set.
pub(crate) fn unused(fields: &[u64]) -> Result<(), Errno> {
    if fields.iter().any(|&f| f != 0) { Err(Errno::EINVAL) } else { Ok(()) }
}

// It moves with every request.
const _: () = assert!(size_of::<Op>() <= 64);
