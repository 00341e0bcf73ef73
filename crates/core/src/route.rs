//! The routing of requests: to the submitter, to poll, to Linux AIO or to a worker. Pure, and the
//! only place that decides it.
//!
//! [`route`] is asked at four [`Step`]s of a request's life, and at some of them twice: before and
//! after a try. `docs/routing.md` prints its answers for all inputs; it is generated from this
//! function (`ops/routing_doc.rs`).

pub(crate) mod hint;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod walk;

use crate::file::{FileKind, IoDirection};
pub(crate) use crate::io_wq::Account;
use crate::write::WriteMode;
use crate::write::history::History;
use hint::AsyncHint;

/// The answer of [`route`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// One system call in the submission loop. No request is built.
    FastPath,
    /// A request is built, and [`route`] is asked about it.
    Request,
    /// The op is tried without sleeping. If that is not enough, [`route`] is asked again.
    Try,
    /// The submitter runs the op without the ring's lock; the op is expected not to sleep.
    Inline,
    /// Poll is armed without a try, which would find nothing.
    PollFirst,
    /// Linux AIO.
    Aio,
    /// The write is delayed by a timer until the dirty budget allows it.
    Throttle,
    /// A thread that may sleep. [`Step::Blocked`] says which one.
    Offload,
    /// The run queue of uringlet mode.
    UringletWorker,
    /// A worker of io-wq runs the op from start to end, sleeping as needed.
    IoWq(Account),
    /// A worker of io-wq tries the op without sleeping, then arms poll (the hybrid step of
    /// `IOSQE_ASYNC`).
    IoWqTry(Account),
    /// As `IoWq`, in uringlet mode: a uringlet worker would be expected to block on this file, and
    /// must not do so while it holds the baton.
    UringletPunt(Account),
}

/// When an op that may block is run by the submitting thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inline {
    Never,
    /// While it is expected to be quick: metadata, where the hop costs more than the work.
    WhileQuick,
    /// Always: it does not sleep.
    Always,
}

/// What the fast path may do of an opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FastPathRule {
    Never,
    /// It needs no file, or its system call does not sleep.
    Always,
    /// Reads that the page cache has.
    CachedReads,
    /// Writes that the page cache is expected to take.
    CachedWrites,
    /// Metadata, while it is expected to be quick.
    WhileQuick,
}

/// Whether a file's readiness says when to try an op again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PollDirection {
    /// The op has none.
    Never,
    Always,
    /// Unless the file has positions: such a file is always "ready".
    Streams,
}

/// The class of io-wq workers that run an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkerClass {
    /// It ends by itself.
    Bounded,
    /// It may wait for other processes.
    Unbounded,
    /// Bounded on a file with positions, unbounded elsewhere.
    ByFile,
}

/// Which ops go to the run queue of uringlet mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunQueueRule {
    Never,
    /// It is not expected to block for long.
    Always,
    /// Buffered writes that do not wait for the disk.
    BufferedWrites,
}

/// The facts of an opcode that decide its route: a part of its row in `ops::table`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpRouting {
    pub(crate) fast_path: FastPathRule,
    pub(crate) inline: Inline,
    pub(crate) poll: PollDirection,
    pub(crate) worker: WorkerClass,
    pub(crate) run_queue: RunQueueRule,
    /// A worker issues it if `IOSQE_ASYNC` is set. Other ops are issued as if it were not.
    pub(crate) honours_async: bool,
}

impl OpRouting {
    /// Whether the kind of the file changes the route of a request.
    pub(crate) fn depends_on_file(self) -> bool {
        self.poll == PollDirection::Streams || self.worker == WorkerClass::ByFile
    }

    pub(crate) fn account(self, file: FileKind) -> Account {
        match self.worker {
            WorkerClass::Bounded => Account::Bound,
            WorkerClass::Unbounded => Account::Unbound,
            WorkerClass::ByFile if file.is_seekable() => Account::Bound,
            WorkerClass::ByFile => Account::Unbound,
        }
    }

    /// Whether it waits for the readiness of such a file.
    pub(crate) fn has_poll_direction(self, file: FileKind) -> bool {
        match self.poll {
            PollDirection::Never => false,
            PollDirection::Always => true,
            PollDirection::Streams => !file.is_seekable(),
        }
    }
}

/// The point in a request's life at which [`route`] is asked, with the facts that matter there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// An SQE, before a request is built.
    Sqe(SqeFacts),
    /// A request, before it is issued.
    Request(RequestFacts),
    /// A read or write of a file with positions, before and after its try.
    Transfer(TransferFacts),
    /// A request that needs a thread that may sleep.
    Blocked(BlockedFacts),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SqeFacts {
    pub(crate) op: OpRouting,
    /// The SQE asks for nothing that needs a request: no flag but a registered file and
    /// `IOSQE_ASYNC`, no option of the opcode, a position where there is one.
    pub(crate) is_plain: bool,
    /// `IOSQE_ASYNC`.
    pub(crate) is_async: bool,
    pub(crate) hint: AsyncHint,
    /// Bytes that the op moves at most, if it may wait for other processes.
    pub(crate) max_transfer: Option<usize>,
    /// No write of this file blocked lately, and none is in flight.
    pub(crate) is_clean: bool,
    /// `RLIMIT_FSIZE` is set: beyond it SIGXFSZ is raised, unless a worker writes.
    pub(crate) may_raise_signal: bool,
    /// The ring's dirty budget covers the write.
    pub(crate) has_budget: bool,
    /// See [`BlockedFacts::is_quick`].
    pub(crate) is_quick: bool,
}

impl SqeFacts {
    /// A plain SQE without `IOSQE_ASYNC`, whose op does not look at the other facts.
    pub(crate) const fn of(op: OpRouting) -> Self {
        Self {
            op,
            is_plain: true,
            is_async: false,
            hint: AsyncHint::Weighed,
            max_transfer: None,
            is_clean: true,
            may_raise_signal: false,
            has_budget: true,
            is_quick: true,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestFacts {
    pub(crate) op: OpRouting,
    /// `IOSQE_ASYNC`.
    pub(crate) is_async: bool,
    pub(crate) hint: AsyncHint,
    /// A poll for the request has fired.
    pub(crate) poll_fired: bool,
    /// A worker has tried it.
    pub(crate) hybrid_done: bool,
    /// The op needs none of the ring's tables.
    pub(crate) is_lockless: bool,
    /// Bytes that a try moves at most, if known.
    pub(crate) max_transfer: Option<usize>,
    /// The readiness cache knows that a receive would find nothing.
    pub(crate) is_known_empty: bool,
}

/// What the first try of a transfer came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tried {
    /// There was none.
    No,
    /// It moved nothing.
    WouldBlock,
    /// It moved a part.
    Short,
}

/// How a file's buffered writes went lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteSpeed {
    /// The caller may be expected not to block.
    Fast,
    /// They blocked, and one was fast since: a try without waiting is worth it.
    Recovering,
    /// They blocked.
    Slow,
}

impl WriteSpeed {
    #[inline]
    pub(crate) fn of(history: History) -> Self {
        match (history.is_fast(), history.may_try()) {
            (true, _) => Self::Fast,
            (false, true) => Self::Recovering,
            (false, false) => Self::Slow,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TransferFacts {
    pub(crate) is_write: bool,
    pub(crate) tried: Tried,
    /// It names its position, and nothing of it is done.
    pub(crate) is_whole: bool,
    /// `RLIMIT_FSIZE` is set: beyond it SIGXFSZ is raised, unless a worker writes.
    pub(crate) may_raise_signal: bool,
    /// What only a write looks at.
    pub(crate) write: WriteFacts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WriteFacts {
    /// The ring's dirty budget covers it. (Rings in [`WriteMode::Workers`] have none.)
    pub(crate) has_budget: bool,
    pub(crate) speed: WriteSpeed,
    /// Writes of this file are with workers or delayed: later ones go behind them.
    pub(crate) has_queued: bool,
    /// It waits for the disk: `O_SYNC`, `O_DSYNC`, `RWF_SYNC`, `RWF_DSYNC`.
    pub(crate) waits_for_disk: bool,
    /// On a thread of the program, not on one that also drives other requests.
    pub(crate) is_submitter: bool,
    /// So many bytes take the caller a while even if it does not block.
    pub(crate) is_large: bool,
}

impl WriteFacts {
    /// Of a read, or of a write before it asks for budget.
    pub(crate) const NONE: Self =
        Self { has_budget: true, speed: WriteSpeed::Fast, has_queued: false, waits_for_disk: false, is_submitter: true, is_large: false };
}

/// From here on a write is a large one, bytes.
const LARGE: u64 = 128 << 10;

/// Whether a write of so many bytes takes the caller a while even if it does not block.
pub(crate) fn is_large(bytes: u64) -> bool {
    bytes >= LARGE
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockedFacts {
    pub(crate) request: RequestFacts,
    /// Operations of this kind are expected to be quick: the submission has only a few SQEs, or
    /// they were quick lately.
    pub(crate) is_quick: bool,
    /// The buffered write that it is.
    pub(crate) write: Option<QueuedWrite>,
}

/// A buffered write on its way to a thread that may sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueuedWrite {
    pub(crate) waits_for_disk: bool,
    /// A uringlet worker is expected not to block on it.
    pub(crate) is_fast: bool,
    /// The run queue holds back writes of this file already: this one goes behind them.
    pub(crate) is_held_back: bool,
}

/// Routes a request on a file of this kind, in a ring of this mode, at this step.
#[inline(always)]
pub(crate) fn route(file: FileKind, mode: WriteMode, step: Step) -> Route {
    match step {
        Step::Sqe(facts) => sqe(file, mode, facts),
        Step::Request(facts) => request(file, facts),
        Step::Transfer(facts) => transfer(file, mode, facts),
        Step::Blocked(facts) => blocked(file, mode, facts),
    }
}

#[inline(always)]
fn sqe(file: FileKind, mode: WriteMode, facts: SqeFacts) -> Route {
    let is_for_submitter = !facts.is_async || is_light(facts.hint, facts.max_transfer);
    let is_done_at_once = match facts.op.fast_path {
        FastPathRule::Never => false,
        FastPathRule::Always => true,
        FastPathRule::CachedReads => file.is_cached_file(),
        FastPathRule::CachedWrites => {
            matches!(mode, WriteMode::Adaptive)
                && file.is_cached_file()
                && file.has_cached_writes()
                && facts.is_clean
                && !facts.may_raise_signal
                && facts.has_budget
        }
        FastPathRule::WhileQuick => facts.is_quick && !matches!(mode, WriteMode::Uringlet),
    };
    if facts.is_plain && is_for_submitter && is_done_at_once { Route::FastPath } else { Route::Request }
}

fn request(file: FileKind, facts: RequestFacts) -> Route {
    let is_for_worker = facts.is_async && facts.op.honours_async && !facts.poll_fired && !facts.hybrid_done;
    if !is_for_worker || is_light(facts.hint, facts.max_transfer) {
        return Route::Try;
    }
    match io_wq(file, facts) {
        Route::IoWqTry(_) if facts.is_known_empty => Route::PollFirst,
        worker => worker,
    }
}

/// Whether the submitter tries a transfer of so many bytes in spite of `IOSQE_ASYNC`.
#[inline(always)]
fn is_light(hint: AsyncHint, max_transfer: Option<usize>) -> bool {
    matches!(hint, AsyncHint::Weighed) && max_transfer.is_some_and(|bytes| bytes <= hint::LIGHT)
}

/// The io-wq worker for a request, and whether it tries before it blocks.
fn io_wq(file: FileKind, facts: RequestFacts) -> Route {
    let account = facts.op.account(file);
    let is_first_try = facts.is_async && !facts.poll_fired && !facts.hybrid_done;
    let may_block = facts.hint == AsyncHint::Block && facts.is_lockless;
    if is_first_try && facts.op.has_poll_direction(file) && !may_block { Route::IoWqTry(account) } else { Route::IoWq(account) }
}

#[inline]
fn transfer(file: FileKind, mode: WriteMode, facts: TransferFacts) -> Route {
    let writes_with_signal = facts.is_write && facts.may_raise_signal;
    if file.is_direct() && facts.is_whole && !writes_with_signal {
        Route::Aio
    } else if facts.is_write {
        buffered_write(file, mode, facts)
    } else if facts.tried == Tried::No && file.supports_nowait(IoDirection::Read) {
        Route::Try
    } else {
        Route::Offload
    }
}

#[inline]
fn buffered_write(file: FileKind, mode: WriteMode, facts: TransferFacts) -> Route {
    let WriteFacts { has_budget, speed, has_queued, waits_for_disk, is_submitter, is_large } = facts.write;
    let may_try = facts.tried == Tried::No && file.supports_nowait(IoDirection::Write);
    if !has_budget && mode != WriteMode::Workers {
        return Route::Throttle;
    }
    if mode != WriteMode::Adaptive || waits_for_disk || facts.may_raise_signal || has_queued || facts.tried == Tried::Short {
        return Route::Offload;
    }
    match speed {
        // Only a part of a large write is reason to hand over the rest.
        WriteSpeed::Fast if is_submitter && is_large && may_try => Route::Try,
        WriteSpeed::Fast if is_submitter => Route::Inline,
        WriteSpeed::Fast | WriteSpeed::Recovering if may_try => Route::Try,
        _ => Route::Offload,
    }
}

fn blocked(file: FileKind, mode: WriteMode, facts: BlockedFacts) -> Route {
    let BlockedFacts { request, is_quick, write } = facts;
    let may_be_inline = match request.op.inline {
        Inline::Always => true,
        Inline::WhileQuick => is_quick && mode != WriteMode::Uringlet,
        Inline::Never => false,
    };
    if may_be_inline && !request.is_async && !request.poll_fired {
        return Route::Inline;
    }
    let is_for_run_queue = match request.op.run_queue {
        RunQueueRule::Never => false,
        RunQueueRule::Always => true,
        RunQueueRule::BufferedWrites => write.is_some_and(|write| !write.waits_for_disk),
    };
    if mode != WriteMode::Uringlet || request.is_async || !is_for_run_queue {
        return io_wq(file, request);
    }
    match write {
        Some(write) if !write.is_fast && !write.is_held_back => Route::UringletPunt(request.op.account(file)),
        _ => Route::UringletWorker,
    }
}
