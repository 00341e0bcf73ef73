//! What an op is given and what it answers, and the methods that a family of opcodes may have.
//!
//! An op only *answers*: it never names io-wq, the poller or the submitter.

use super::filled::FilledBytes;
use super::outcome::Outcome;
use crate::file::{FileKind, IoDirection};
use crate::ring::cq::CqeExtra;
use crate::ring_resources::RingResources;
use crate::rsrc::buf_ring::SelectedBuf;
use crate::rsrc::buffers::BufferNode;
use crate::rsrc::files::FileNode;
use crate::throttle::Throttled;
use alloc::sync::Arc;
#[cfg(test)]
use uringlet_abi::Sqe;
use uringlet_sys::Errno;
use uringlet_sys::ring_memory::RingMemory;

/// The answer of one attempt to issue an op.
#[derive(Debug)]
pub(crate) enum Issue {
    /// Complete.
    Complete(Outcome),
    /// Multishot: post a CQE with `F_MORE` now, then issue the op again.
    More(Outcome),
    /// A try found nothing. Issue the op again when the file has one of these poll events.
    WouldBlock(u32),
    /// As `WouldBlock`, but the file may be ready already: its readiness is checked when poll is
    /// armed.
    PollFirst(u32),
    /// Multishot: the file has more, but other requests have their turn first. Issue the op again
    /// when poll reports one of these events, behind those of other files.
    EndTurn(u32),
    /// Needs a thread that may sleep in [`OpFamily::run`].
    Blocks,
    /// Is expected not to sleep in [`OpFamily::run`]: a write to the page cache.
    RunInline,
    /// The dirty budget is used up: the write is delayed.
    Throttled(Throttled),
    /// Goes to Linux AIO.
    Aio,
    /// Operates on the ring or on other requests; `submit` implements it (poll, timeout, cancel,
    /// buffers, commands).
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

/// The file of a request while it is issued.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpFile {
    /// The descriptor number to use; -1 if the op has no file.
    pub(crate) fd: i32,
    /// Whether the number is the engine's own (a registered file).
    pub(crate) is_fixed: bool,
}

impl OpFile {
    /// The kind of the file (cached).
    pub(crate) fn kind(self) -> FileKind {
        FileKind::of(self.fd)
    }
}

/// What an op may use while it is issued under the ring's lock.
#[derive(Debug)]
pub(crate) struct IssueCx<'a> {
    pub(crate) ring: &'a mut RingResources,
    pub(crate) file: OpFile,
    /// For an op that posts several CQEs in one try.
    pub(crate) user_data: u64,
    /// The same, for a tracer: the request's number and the ways it went.
    pub(crate) traced_as: (u32, u8),
    /// `IOSQE_*` of the request.
    pub(crate) sqe_flags: u8,
    /// The group to select a buffer from, if `IOSQE_BUFFER_SELECT` is set.
    pub(crate) buf_group: u16,
    /// A poll for this request has fired: the file was ready a moment ago.
    pub(crate) poll_fired: bool,
    /// The registered buffer that the request holds since an earlier try.
    pub(crate) held_buffer: Option<&'a BufferNode>,
}

impl IssueCx<'_> {
    /// The registered buffer of this index, or what the request holds: the slot may have changed
    /// since its first try.
    ///
    /// # Errors
    /// `EFAULT` there is none.
    pub(crate) fn buffer(&self, index: u16) -> Result<&BufferNode, Errno> {
        self.held_buffer.or_else(|| self.ring.buffers.get(index).map(|node| &**node)).ok_or(Errno::EFAULT)
    }
}

/// What `prep` may know of the ring.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PrepCx {
    /// `IORING_SETUP_*`.
    pub(crate) setup: u32,
    /// `IOSQE_*` of the SQE.
    pub(crate) sqe_flags: u8,
    /// Whether this request follows another one in its chain (LINK_TIMEOUT needs one).
    pub(crate) is_after_link: bool,
    /// The SQE takes two entries of 64 bytes.
    pub(crate) is_wide: bool,
}

/// A family's `prep`, as unit tests list them.
#[cfg(test)]
pub(crate) type Prep<Family> = fn(&Sqe, &PrepCx) -> Result<Family, Errno>;

/// `Err(EINVAL)` if any of the fields an opcode does not use is set.
pub(crate) fn unused(fields: &[u64]) -> Result<(), Errno> {
    if fields.iter().any(|&f| f != 0) { Err(Errno::EINVAL) } else { Ok(()) }
}

/// How far the fast path got with a transfer that becomes a request after all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FastProgress {
    /// Nothing was tried.
    None,
    /// So many bytes were moved.
    Bytes(usize),
    /// A try without waiting found nothing.
    WouldBlock,
}

/// A family of opcodes. Each default is what most families want.
pub(crate) trait OpFamily {
    /// Tries without sleeping, under the ring's lock.
    #[inline]
    fn try_issue(&mut self, _cx: &mut IssueCx<'_>) -> Issue {
        Issue::RingOp
    }

    /// As [`try_issue`](Self::try_issue), but without the ring's lock. `None` if the op needs the
    /// ring's tables.
    fn try_unlocked(&mut self, _fd: i32) -> Option<Issue> {
        None
    }

    /// Runs the op from start to end without the ring's lock, sleeping as needed. `fd` is the
    /// resolved file.
    fn run(&mut self, _fd: i32) -> Outcome {
        unreachable!("only ops that answer Blocks are run")
    }

    /// Runs after [`run`](Self::run), under the ring's lock: does what needs the ring's tables.
    /// Maps `run`'s outcome to the CQE result.
    fn finish(&mut self, _ring: &mut RingResources, outcome: Outcome) -> Outcome {
        outcome
    }

    /// Copies the arguments that the program may reuse once its SQE is consumed: iovecs, paths,
    /// message headers (`IORING_FEAT_SUBMIT_STABLE`). Called before the op outlives its submission.
    fn import_args(&mut self) -> Result<(), Errno> {
        Ok(())
    }

    /// Takes from the ring's tables what a worker will need, which has no access to them.
    fn prepare_for_worker(&mut self, _cx: &mut IssueCx<'_>) -> Result<(), Errno> {
        Ok(())
    }

    /// The poll events that a plain receive of a stream's bytes waits for.
    fn receive_events(&self) -> Option<u32> {
        None
    }

    /// Bytes that one try moves at most, where that is known beforehand.
    fn max_transfer(&self) -> Option<usize> {
        None
    }

    /// The index of the registered buffer that it uses.
    fn registered_buffer(&self) -> Option<u16> {
        None
    }

    /// Where the bytes are that it has read or received, if that is known.
    fn filled(&self) -> Option<FilledBytes> {
        None
    }

    /// The second half of the CQE with this outcome, on a ring that has CQEs of 32 bytes.
    fn cqe_extra(&self, _outcome: Outcome) -> Option<CqeExtra> {
        None
    }

    /// Takes the registered file that it holds beside the request's own.
    fn take_file(&mut self) -> Option<Arc<FileNode>> {
        None
    }

    /// Whether [`run`](Self::run) needs none of the ring's tables.
    fn is_lockless(&self) -> bool {
        true
    }

    /// Whether it reads or writes a file, as READ and WRITE do.
    fn direction(&self) -> Option<IoDirection> {
        None
    }

    /// Whether a write ends only when the disk has its data.
    fn waits_for_disk(&self, _kind: FileKind) -> bool {
        false
    }

    /// Bytes that a transfer in several parts has moved so far.
    fn bytes_done(&self) -> usize {
        0
    }

    /// The provided buffer that the request took and did not use: it goes back to its group.
    fn take_selected(&mut self) -> Option<SelectedBuf> {
        None
    }

    /// Continues where the fast path stopped.
    #[inline]
    fn resume(&mut self, _progress: FastProgress) {}

    /// Reads the second half of a 128-byte SQE, where it has one.
    #[inline]
    fn read_big_sqe(&mut self, _memory: &RingMemory, _index: u32) {}
}
