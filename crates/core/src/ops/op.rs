//! [`Op`]: a validated operation of any family.
//!
//! Two phases, as in the kernel. `prep` reads and validates the SQE once: every `EINVAL` of a
//! malformed SQE comes from there. Then the op is issued, perhaps several times:
//! - [`Op::try_issue`] under the ring's lock: it must not sleep;
//! - [`Op::run`] without the lock, on the caller's thread or on a worker: it may.

use super::buffers::BuffersOp;
use super::cancel::CancelOp;
use super::fds::FdsOp;
use super::fs::FsOp;
use super::futex::FutexOp;
use super::issue::{FastProgress, Issue, IssueCx, OpFamily};
use super::msg_ring::MsgRing;
use super::net::NetOp;
use super::nop::Nop;
use super::outcome::Outcome;
use super::poll::PollOp;
use super::rw::Rw;
use super::splice::Splice;
use super::stream::StreamOp;
use super::sync::SyncOp;
use super::timeout::TimeoutOp;
use super::uring_cmd::CmdOp;
use super::waitid::Waitid;
use crate::file::{FileKind, IoDirection};
use crate::ops::FilledBytes;
use crate::ring::cq::CqeExtra;
use crate::ring_resources::RingResources;
use crate::rsrc::buf_ring::SelectedBuf;
use crate::rsrc::files::FileNode;
use alloc::boxed::Box;
use alloc::sync::Arc;
use uringlet_sys::Errno;
use uringlet_sys::ring_memory::RingMemory;

/// Makes [`Op`] of the families, and `family!`, which calls a method of an op's family.
macro_rules! op_families {
    ($d:tt $($variant:ident($stored:ty) from $family:ty;)*) => {
        /// A typed, validated operation.
        #[derive(Debug)]
        pub(crate) enum Op {
            $($variant($stored),)*
            /// Moved out: a worker has the op at the moment.
            InFlight,
            /// `prep` refused it. A failing chain reports this errno for it.
            Malformed(Errno),
        }

        $(impl From<$family> for Op {
            #[inline]
            fn from(op: $family) -> Self {
                Self::$variant(op.into())
            }
        })*

        macro_rules! family {
            ($d this:expr, $d op:ident => $d call:expr, none => $d none:expr) => {
                match $d this {
                    $(Op::$variant($d op) => $d call,)*
                    Op::InFlight | Op::Malformed(_) => $d none,
                }
            };
        }
    };
}

// Large families are boxed: most requests never leave the submitter's stack, and move cheaply only
// while they are small.
op_families! { $
    Nop(Nop) from Nop;
    Rw(Rw) from Rw;
    Sync(SyncOp) from SyncOp;
    Fs(Box<FsOp>) from FsOp;
    Splice(Box<Splice>) from Splice;
    Net(Box<NetOp>) from NetOp;
    Stream(Box<StreamOp>) from StreamOp;
    MsgRing(Box<MsgRing>) from MsgRing;
    Fds(FdsOp) from FdsOp;
    Poll(PollOp) from PollOp;
    Timeout(TimeoutOp) from TimeoutOp;
    Cancel(CancelOp) from CancelOp;
    Buffers(BuffersOp) from BuffersOp;
    Cmd(CmdOp) from CmdOp;
    Waitid(Waitid) from Waitid;
    Futex(FutexOp) from FutexOp;
}

// It moves with every request.
const _: () = assert!(size_of::<Op>() <= 64);

/// See [`OpFamily`] for what each method means.
impl Op {
    #[inline(always)]
    pub(crate) fn try_issue(&mut self, cx: &mut IssueCx<'_>) -> Issue {
        family!(self, op => op.try_issue(cx), none => unreachable!("a request is issued by the owner of its op"))
    }

    pub(crate) fn try_unlocked(&mut self, fd: i32) -> Option<Issue> {
        family!(self, op => op.try_unlocked(fd), none => None)
    }

    #[inline]
    pub(crate) fn run(&mut self, fd: i32) -> Outcome {
        family!(self, op => op.run(fd), none => unreachable!("only ops that answer Blocks are run"))
    }

    /// As [`run`](Self::run), for callers that must not pay for a return after the system call
    /// (`docs/decisions/0003`).
    #[inline(always)]
    pub(crate) fn run_in_place(&mut self, fd: i32) -> Outcome {
        match self {
            Self::Rw(op) => op.run_in_place(fd),
            op => op.run(fd),
        }
    }

    #[inline]
    pub(crate) fn finish(&mut self, ring: &mut RingResources, outcome: Outcome) -> Outcome {
        family!(self, op => op.finish(ring, outcome), none => outcome)
    }

    pub(crate) fn import_args(&mut self) -> Result<(), Errno> {
        family!(self, op => op.import_args(), none => Ok(()))
    }

    pub(crate) fn prepare_for_worker(&mut self, cx: &mut IssueCx<'_>) -> Result<(), Errno> {
        family!(self, op => op.prepare_for_worker(cx), none => Ok(()))
    }

    pub(crate) fn receive_events(&self) -> Option<u32> {
        family!(self, op => op.receive_events(), none => None)
    }

    pub(crate) fn max_transfer(&self) -> Option<usize> {
        family!(self, op => op.max_transfer(), none => None)
    }

    pub(crate) fn registered_buffer(&self) -> Option<u16> {
        family!(self, op => op.registered_buffer(), none => None)
    }

    pub(crate) fn filled(&self) -> Option<FilledBytes> {
        family!(self, op => op.filled(), none => None)
    }

    pub(crate) fn cqe_extra(&self, outcome: Outcome) -> Option<CqeExtra> {
        family!(self, op => op.cqe_extra(outcome), none => None)
    }

    pub(crate) fn take_file(&mut self) -> Option<Arc<FileNode>> {
        family!(self, op => op.take_file(), none => None)
    }

    pub(crate) fn is_lockless(&self) -> bool {
        family!(self, op => op.is_lockless(), none => true)
    }

    pub(crate) fn waits_for_disk(&self, kind: FileKind) -> bool {
        family!(self, op => op.waits_for_disk(kind), none => false)
    }

    /// Bytes that a transfer in several parts has moved so far, if any.
    pub(crate) fn bytes_done(&self) -> Option<usize> {
        let bytes = family!(self, op => op.bytes_done(), none => 0);
        Some(bytes).filter(|&n| n > 0)
    }

    pub(crate) fn take_selected(&mut self) -> Option<SelectedBuf> {
        family!(self, op => op.take_selected(), none => None)
    }

    #[inline]
    pub(crate) fn resume(&mut self, progress: FastProgress) {
        family!(self, op => op.resume(progress), none => {});
    }

    #[inline]
    pub(crate) fn read_big_sqe(&mut self, memory: &RingMemory, index: u32) {
        family!(self, op => op.read_big_sqe(memory, index), none => {});
    }

    /// Whether it is a read. (A receive from a socket is another opcode.)
    pub(crate) fn is_read(&self) -> bool {
        family!(self, op => op.direction() == Some(IoDirection::Read), none => false)
    }

    /// Whether it is a write, which goes through the page cache if the file does.
    pub(crate) fn is_write(&self) -> bool {
        family!(self, op => op.direction() == Some(IoDirection::Write), none => false)
    }
}
