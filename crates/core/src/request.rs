//! One request: what an SQE becomes. (The kernel's `io_kiocb`.)
//!
//! Life of a request:
//!
//! ```text
//!   SQE --prep--> Request --issue--> complete (most never leave the submitter's stack)
//!                    |
//!                    +-- parked in the ring's table, in one Stage at a time:
//!                          Armed   apoll or POLL_ADD: the poller holds it      -> ready: issued again
//!                          Timer   the timers hold it                          -> expired: completed
//!                          Worker  io-wq holds its op                          -> done: completed
//!                          Aio     the kernel's AIO context holds it           -> done: completed
//! ```
//!
//! Whoever removes a request from the table owns it and completes it: that is why each gets its CQE exactly once.

use crate::ops::Op;
pub(crate) use crate::ops::{Notification, Outcome};
pub(crate) use crate::req_id::ReqId;
use crate::rsrc::files::FileNode;
use crate::throttle::{self, Throttled};
use crate::write::{self, history::History};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::num::NonZeroU32;
use uringlet_abi::{Opcode, Sqe};
use uringlet_sys::{Errno, fd_table};

/// Which file a request works on.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// None, or the op names its own.
    None,
    /// A descriptor number of the program.
    Fd(i32),
    /// A registered file by index: looked up when issued.
    Fixed(u32),
    /// A registered file, held: it outlives its slot.
    Held(Arc<FileNode>),
}

/// Where a parked request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// With the poller, on this descriptor.
    Armed { fd: i32 },
    /// With the timers.
    Timer { deadline_ns: u64, seq: u64 },
    /// A write that was put off, with the timers.
    Throttled { throttled: Throttled, seq: u64, since_ns: u64 },
    /// In line for the ring's attendants.
    Queued,
    /// With an attendant: this thread, 0 for one of the program's.
    Running { tid: u32 },
    /// With io-wq, under this work number.
    Worker { work: u64 },
    /// With the kernel's AIO.
    Aio,
    /// With a virtual file.
    Command,
    /// A LINK_TIMEOUT, with the timers; it belongs to the request before it.
    LinkTimer { deadline_ns: u64, seq: u64, guards: ReqId },
}

/// A request and what follows it.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) op: Op,
    pub(crate) opcode: Opcode,
    /// `IOSQE_*`.
    pub(crate) flags: u8,
    /// The provided-buffer group to select from.
    pub(crate) buf_group: u16,
    pub(crate) target: Target,
    pub(crate) user_data: u64,
    /// An earlier failure in the chain, of a request with `CQE_SKIP_SUCCESS`, silences this one.
    pub(crate) is_silent: bool,
    /// A poll for it has fired already: a worker may be the next step.
    pub(crate) poll_fired: bool,
    /// A worker has had its try at it: what `IOSQE_ASYNC` asks for is done.
    pub(crate) hybrid_done: bool,
    /// Cancelled while running: its result is said as it is, its multishot goes no further.
    pub(crate) is_cancelled: bool,
    /// What follows its CQE.
    pub(crate) notification: Option<Notification>,
    /// The rest of the link chain.
    pub(crate) next: Option<Box<Request>>,
    /// The armed LINK_TIMEOUT that guards this request.
    pub(crate) link_timer: Option<ReqId>,
    /// A buffered write of this number's file: while it is parked, later ones go behind it.
    pub(crate) queued_on: Option<i32>,
}

impl Request {
    /// A request that has no op yet.
    #[inline]
    pub(crate) fn new(sqe: &Sqe) -> Self {
        Self {
            op: Op::InFlight,
            opcode: Opcode::Nop,
            flags: sqe.flags,
            buf_group: sqe.buf_index,
            target: Target::None,
            user_data: sqe.user_data,
            is_silent: false,
            poll_fired: false,
            hybrid_done: false,
            is_cancelled: false,
            notification: None,
            next: None,
            link_timer: None,
            queued_on: None,
        }
    }

    /// The request, leaving nothing of it behind.
    pub(crate) fn take(&mut self) -> Self {
        core::mem::replace(self, Self::new(&Sqe::default()))
    }

    /// The chain behind the request, which stands alone from now on; under a placeholder as its head.
    pub(crate) fn take_rest(&mut self) -> Self {
        Self { next: self.next.take(), ..Self::new(&Sqe::default()) }
    }

    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// What `prep` had against its SQE.
    pub(crate) fn prep_error(&self) -> Option<Errno> {
        if let Op::Malformed(errno) = self.op { Some(errno) } else { None }
    }

    /// The registered file that it holds.
    pub(crate) fn node(&self) -> Option<&Arc<FileNode>> {
        match &self.target {
            Target::Held(node) => Some(node),
            _ => None,
        }
    }

    /// The number by which cancel-by-fd finds it.
    pub(crate) fn fd(&self) -> Option<i32> {
        match &self.target {
            Target::Fd(fd) => Some(*fd),
            _ => None,
        }
    }
}

/// A parked request.
#[derive(Debug)]
pub(crate) struct Parked {
    pub(crate) req: Request,
    pub(crate) stage: Stage,
    pub(crate) generation: NonZeroU32,
}

impl Parked {
    /// It is being parked, in the ring of this place: the descriptor table shows it, and what is put off is counted.
    pub(crate) fn mark(&self, ring_index: u32) {
        if let Target::Fd(fd) = self.req.target {
            fd_table::add_user(fd);
        }
        if let Some(fd) = self.req.queued_on {
            write::note(fd, History::queue);
        }
        if let Stage::Throttled { .. } = self.stage {
            throttle::note_throttled(ring_index);
        }
    }

    /// It is parked no longer.
    pub(crate) fn unmark(&self, ring_index: u32) {
        if let Target::Fd(fd) = self.req.target {
            fd_table::drop_user(fd);
        }
        if let Some(fd) = self.req.queued_on {
            write::note(fd, History::unqueue);
        }
        if let Stage::Throttled { throttled, since_ns, .. } = self.stage {
            throttle::note_unthrottled(ring_index, throttled, since_ns);
        }
    }

    /// A write to this number's file that was put off.
    pub(crate) fn throttled(&self) -> Option<(i32, Throttled)> {
        match self.stage {
            Stage::Throttled { throttled, .. } => self.req.queued_on.map(|fd| (fd, throttled)),
            _ => None,
        }
    }

    /// When its timer expires, ns; 0 if it has none.
    pub(crate) fn deadline_ns(&self) -> u64 {
        match self.stage {
            Stage::Timer { deadline_ns, .. } | Stage::LinkTimer { deadline_ns, .. } => deadline_ns,
            Stage::Throttled { throttled, .. } => throttled.deadline_ns,
            _ => 0,
        }
    }
}
