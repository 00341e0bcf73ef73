//! One request: what an SQE becomes. (The kernel's `io_kiocb`.)
//!
//! Life of a request:
//!
//! ```text
//!   SQE --prep--> Request --issue--> complete (most never leave the submitter's stack)
//!                    |
//!                    +-- parked in the ring's table, in one Stage at a time:
//!                          Armed      a poll of its file, or POLL_ADD          -> ready: issued again, or completed
//!                          Timer      a TIMEOUT                                -> expired, or CQEs counted: completed
//!                          LinkTimer  a LINK_TIMEOUT behind its request        -> expired: cancels the request
//!                          Throttled  a delayed write                          -> expired: goes to a worker
//!                          Delayed    a delay that was injected                -> expired: issued again
//!                          Queued     in the run queue of uringlet mode        -> taken: Running
//!                          Running    a uringlet worker or a waiter runs it    -> done: completed
//!                          Worker     queued for io-wq, or on its worker       -> done: completed, or Armed
//!                          Aio        submitted to the kernel's AIO            -> done: completed
//!                          Command    a virtual file has the command           -> done: completed
//! ```
//!
//! The thread that removes a request from the table owns it and completes it, so each gets its CQE
//! exactly once.

use crate::identity::{self, Identity};
use crate::io_wq::Hold;
pub(crate) use crate::ops::{Notification, Outcome};
use crate::ops::{Op, table};
pub(crate) use crate::req_id::ReqId;
use crate::rsrc::buffers::BufferNode;
use crate::rsrc::files::FileNode;
use crate::throttle::{self, Throttled};
use crate::trace::TraceTag;
use crate::write::{self, history::History};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::num::NonZeroU32;
use core::ops::{Deref, DerefMut};
use uringlet_abi::{Opcode, Sqe};
use uringlet_sys::fault_plan::FaultActions;
use uringlet_sys::trace::road;
use uringlet_sys::{Errno, fd_table};

/// The file of a request.
#[derive(Clone, Debug)]
pub(crate) enum FileTarget {
    /// None, or the op has its own.
    None,
    /// A descriptor number of the program.
    Fd(i32),
    /// A registered file by index: looked up when issued.
    Fixed(u32),
    /// A registered file, held: it outlives its slot.
    Held(Arc<FileNode>),
    /// A duplicate of a number of the program that is still open. A close of the number does not
    /// touch the request.
    Duplicate(i32, Arc<FileNode>),
}

/// What a parked request waits for. `state::disarm` and `submit::cancel` match on all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Armed in the poller, on this descriptor.
    Armed { fd: i32 },
    /// A TIMEOUT.
    Timer { deadline_ns: u64, seq: u64 },
    /// It was delayed on purpose.
    Delayed { deadline_ns: u64, seq: u64 },
    /// A delayed write.
    Throttled { throttled: Throttled, seq: u64, since_ns: u64 },
    /// In the run queue of the ring's own workers.
    Queued,
    /// A uringlet worker runs it, or a thread of the program ([`Parked::executor`]).
    Running,
    /// In io-wq, under this work number.
    Worker { work: u64 },
    /// Submitted to the kernel's AIO.
    Aio,
    /// A virtual file has the command.
    Command,
    /// A LINK_TIMEOUT; it guards the request before it.
    LinkTimer { deadline_ns: u64, seq: u64, guards: ReqId },
}

/// The rest of a link chain.
///
/// A chain is as long as the SQ, and a drop of nested boxes takes a stack frame a link: this one
/// is a loop.
#[derive(Debug)]
pub(crate) struct NextLink(Option<Box<Request>>);

impl Deref for NextLink {
    type Target = Option<Box<Request>>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for NextLink {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl Drop for NextLink {
    #[inline]
    fn drop(&mut self) {
        let mut next = self.0.take();
        while let Some(mut req) = next {
            next = req.next.take();
        }
    }
}

/// An identity that a request keeps although its submitter may change. A worker stays for it.
#[derive(Clone, Debug)]
pub(crate) struct CapturedIdentity {
    pub(crate) identity: Identity,
    pub(crate) _hold: Hold,
}

/// What decides with which identity a request acts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Submitter {
    pub(crate) opcode: Opcode,
    /// The key of the thread.
    pub(crate) thread: u64,
    pub(crate) captured: Option<Identity>,
}

impl Submitter {
    /// Whether the request depends on it.
    pub(crate) fn matters(self) -> bool {
        self.acts_as_submitter() || (identity::has_changed_files() && table::of(self.opcode).routing.honours_async)
    }

    /// Whether it does so not only because descriptor numbers mean something else elsewhere.
    pub(crate) fn acts_as_submitter(self) -> bool {
        table::of(self.opcode).acts_as_submitter
    }

    /// The identity to act with.
    pub(crate) fn identity(self) -> Identity {
        self.captured.unwrap_or_else(|| identity::of_thread(self.thread))
    }
}

/// What few requests have.
#[derive(Debug, Default)]
pub(crate) struct RareParts {
    /// The registered buffer, once the request outlives its first try.
    pub(crate) buffer: Option<Arc<BufferNode>>,
    /// The registered file of which it uses a duplicate of its own.
    pub(crate) registered_file: Option<Arc<FileNode>>,
    /// The identity that its submitter had when it was queued, where that is the one to act with.
    pub(crate) captured: Option<CapturedIdentity>,
    /// The notification that follows its CQE.
    pub(crate) notification: Option<Notification>,
    /// The armed LINK_TIMEOUT that guards the request.
    pub(crate) link_timer: Option<ReqId>,
    /// What is done to it on purpose, as far as that is to come.
    pub(crate) fault: Option<FaultActions>,
}

/// A descriptor number, or none: as small as a number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OptionalFd(i32);

impl OptionalFd {
    pub(crate) const NONE: Self = Self(-1);

    pub(crate) const fn some(fd: i32) -> Self {
        Self(fd)
    }

    #[inline]
    pub(crate) const fn get(self) -> Option<i32> {
        if self.0 < 0 { None } else { Some(self.0) }
    }

    pub(crate) const fn take(&mut self) -> Option<i32> {
        core::mem::replace(self, Self::NONE).get()
    }
}

/// A request and the rest of its chain.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) op: Op,
    pub(crate) opcode: Opcode,
    /// `IOSQE_*`.
    pub(crate) flags: u8,
    /// The provided-buffer group to select from.
    pub(crate) buf_group: u16,
    pub(crate) target: FileTarget,
    pub(crate) user_data: u64,
    /// An earlier failure in the chain, of a request with `CQE_SKIP_SUCCESS`, silences this one.
    pub(crate) is_silent: bool,
    /// A poll for it has fired already: a worker may be the next step.
    pub(crate) poll_fired: bool,
    /// A worker has tried it: what `IOSQE_ASYNC` asks for is done.
    pub(crate) hybrid_done: bool,
    /// Cancelled while running: it reports its result as it is, and a multishot ends.
    pub(crate) is_cancelled: bool,
    /// The key of the thread that submitted it: `crate::identity` says who that is.
    pub(crate) thread: u64,
    /// The rest of the link chain.
    pub(crate) next: NextLink,
    rare: Option<Box<RareParts>>,
    /// A buffered write of this number's file: while it is parked, later ones go behind it.
    pub(crate) queued_on: OptionalFd,
    /// What a tracer knows it by.
    pub(crate) trace: TraceTag,
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
            target: FileTarget::None,
            user_data: sqe.user_data,
            is_silent: false,
            poll_fired: false,
            hybrid_done: false,
            is_cancelled: false,
            thread: 0,
            next: NextLink(None),
            rare: None,
            queued_on: OptionalFd::NONE,
            trace: TraceTag::NONE,
        }
    }

    /// Takes the request and leaves an empty one.
    pub(crate) fn take(&mut self) -> Self {
        core::mem::replace(self, Self::new(&Sqe::default()))
    }

    /// Takes the chain behind the request, under a placeholder as its head.
    pub(crate) fn take_rest(&mut self) -> Self {
        Self { next: NextLink(self.next.take()), ..Self::new(&Sqe::default()) }
    }

    pub(crate) fn submitter(&self) -> Submitter {
        let captured = self.rare().and_then(|rare| rare.captured.as_ref()).map(|captured| captured.identity);
        Submitter { opcode: self.opcode, thread: self.thread, captured }
    }

    /// What it has of that.
    #[inline]
    pub(crate) fn rare(&self) -> Option<&RareParts> {
        self.rare.as_deref()
    }

    /// The op, and the registered buffer that the request holds.
    #[inline]
    pub(crate) fn op_and_buffer(&mut self) -> (&mut Op, Option<&BufferNode>) {
        (&mut self.op, self.rare.as_deref().and_then(|rare| rare.buffer.as_deref()))
    }

    /// To give it a part.
    pub(crate) fn rare_mut(&mut self) -> &mut RareParts {
        self.rare.get_or_insert_default()
    }

    /// Takes a part away, if it is there.
    #[inline]
    pub(crate) fn take_rare<T>(&mut self, part: impl FnOnce(&mut RareParts) -> &mut Option<T>) -> Option<T> {
        self.rare.as_deref_mut().and_then(|rare| part(rare).take())
    }

    /// What is done to it on purpose.
    #[inline]
    pub(crate) fn fault(&mut self) -> Option<&mut FaultActions> {
        if self.trace.is_injected() { self.rare.as_deref_mut().and_then(|rare| rare.fault.as_mut()) } else { None }
    }

    /// Whether its CQE goes to the overflow list on purpose.
    #[inline]
    pub(crate) fn overflows_on_purpose(&self) -> bool {
        self.trace.is_injected() && self.rare().and_then(|rare| rare.fault).is_some_and(|fault| fault.has(FaultActions::OVERFLOW))
    }

    /// A multishot has a result: whether that is its last one on purpose.
    #[inline]
    pub(crate) fn ends_on_purpose(&mut self) -> bool {
        let Some(fault) = self.fault().filter(|fault| fault.shots > 0) else { return false };
        fault.shots -= 1;
        fault.shots == 0
    }

    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The errno with which `prep` refused its SQE.
    pub(crate) fn prep_error(&self) -> Option<Errno> {
        if let Op::Malformed(errno) = self.op { Some(errno) } else { None }
    }

    /// The engine's file that it holds.
    pub(crate) fn node(&self) -> Option<&Arc<FileNode>> {
        match &self.target {
            FileTarget::Held(node) | FileTarget::Duplicate(_, node) => Some(node),
            FileTarget::None | FileTarget::Fd(_) | FileTarget::Fixed(_) => None,
        }
    }

    /// The descriptor number by which its file is used.
    pub(crate) fn open_number(&self) -> Option<i32> {
        match &self.target {
            FileTarget::Fd(fd) => Some(*fd),
            FileTarget::Held(node) | FileTarget::Duplicate(_, node) => Some(node.fd.number()),
            FileTarget::None | FileTarget::Fixed(_) => None,
        }
    }

    /// Whether the number by which its file is used is closed with it.
    pub(crate) fn closes_its_number(&self) -> bool {
        match &self.target {
            FileTarget::Held(node) | FileTarget::Duplicate(_, node) => Arc::strong_count(node) == 1,
            FileTarget::None | FileTarget::Fd(_) | FileTarget::Fixed(_) => false,
        }
    }

    /// The descriptor number that the program has used.
    pub(crate) fn fd(&self) -> Option<i32> {
        match &self.target {
            FileTarget::Fd(fd) | FileTarget::Duplicate(fd, _) => Some(*fd),
            _ => None,
        }
    }
}

// It moves with every step: two cache lines.
#[cfg(not(loom))]
const _: () = assert!(size_of::<Request>() <= 128);

/// A parked request.
#[derive(Debug)]
pub(crate) struct Parked {
    pub(crate) req: Request,
    pub(crate) stage: Stage,
    pub(crate) generation: NonZeroU32,
    /// While its op is [taken](Op::InFlight): the thread of the engine that executes it, 0 for one
    /// of the program.
    pub(crate) executor: u32,
}

impl Stage {
    /// What a tracer calls this way.
    pub(crate) const fn road(self) -> u8 {
        match self {
            Self::Armed { .. } => road::POLL,
            Self::Timer { .. } | Self::LinkTimer { .. } | Self::Throttled { .. } | Self::Delayed { .. } => road::TIMER,
            Self::Queued | Self::Running => road::URINGLET,
            Self::Worker { .. } => road::IO_WQ,
            Self::Aio => road::AIO,
            Self::Command => road::COMMAND,
        }
    }
}

impl Parked {
    /// The request is parked: updates the descriptor table, the write history and the statistics.
    pub(crate) fn mark(&self, ring_index: u32) {
        if let Some(fd) = self.req.fd() {
            fd_table::add_user(fd);
        }
        if let Some(fd) = self.req.queued_on.get() {
            write::note(fd, History::queue);
        }
        if let Stage::Throttled { .. } = self.stage {
            throttle::note_throttled(ring_index);
        }
        if let Some(fd) = self.polled() {
            fd_table::set_polling_ring(fd, ring_index);
        }
    }

    /// The request is parked no longer: undoes [`mark`](Self::mark).
    pub(crate) fn unmark(&self, ring_index: u32) {
        if let Some(fd) = self.req.fd() {
            fd_table::drop_user(fd);
        }
        if let Some(fd) = self.req.queued_on.get() {
            write::note(fd, History::unqueue);
        }
        if let Stage::Throttled { throttled, since_ns, .. } = self.stage {
            throttle::note_unthrottled(ring_index, throttled, since_ns);
        }
        if let Some(fd) = self.polled() {
            fd_table::clear_polling_ring(fd, ring_index);
        }
    }

    /// The program's number that this POLL_ADD waits on.
    pub(crate) fn polled(&self) -> Option<i32> {
        if self.req.opcode == Opcode::PollAdd { self.req.fd() } else { None }
    }

    /// The file number of a delayed write, and its delay.
    pub(crate) fn throttled(&self) -> Option<(i32, Throttled)> {
        match self.stage {
            Stage::Throttled { throttled, .. } => self.req.queued_on.get().map(|fd| (fd, throttled)),
            _ => None,
        }
    }

    /// When its timer expires, ns; 0 if it has none.
    pub(crate) fn deadline_ns(&self) -> u64 {
        match self.stage {
            Stage::Timer { deadline_ns, .. } | Stage::LinkTimer { deadline_ns, .. } | Stage::Delayed { deadline_ns, .. } => deadline_ns,
            Stage::Throttled { throttled, .. } => throttled.deadline_ns,
            _ => 0,
        }
    }
}
