//! The answers of [`route`], row by row, as written down by hand; every row of the generated tables
//! has at least one here.

use super::hint::{AsyncHint, LIGHT};
use super::walk::{BLOCKED, Input, NO_OP, PLAIN_REQUEST, REQUEST, SQE, TRANSFER, Walk};
use super::{
    Account, BlockedFacts, FastPathRule, Inline, OpRouting, PollDirection, QueuedWrite, RequestFacts, Route, RunQueueRule, SqeFacts, Step,
    TransferFacts, Tried, WorkerClass, WriteFacts, WriteSpeed, route,
};
use crate::file::{FileKind, IoDirection};
use crate::write::WriteMode;
use alloc::vec::Vec;

const BOUNDED: Account = Account::Bound;
const ADAPTIVE: WriteMode = WriteMode::Adaptive;

/// Each input has its answer, and every row of the walk has an input here.
fn check(walk: &Walk, table: &[(Input, Route)]) {
    for (n, ((file, mode, step), expected)) in table.iter().enumerate() {
        assert_eq!(route(*file, *mode, *step), *expected, "row {n}: {file:?}, {mode:?}, {step:?}");
    }
    let inputs: Vec<Input> = table.iter().map(|(input, _)| *input).collect();
    for row in walk.rows() {
        assert!(walk.inputs(&row).iter().any(|input| inputs.contains(input)), "no input for {row:?} of {}", walk.title);
    }
}

#[test]
fn sqe_routes() {
    let of = |fast_path| SqeFacts::of(OpRouting { fast_path, ..NO_OP });
    let (never, always) = (of(FastPathRule::Never), of(FastPathRule::Always));
    let (reads, writes) = (of(FastPathRule::CachedReads), of(FastPathRule::CachedWrites));
    let metadata = of(FastPathRule::WhileQuick);
    let plain_not = |facts| SqeFacts { is_plain: false, ..facts };
    let with_async = |facts, hint, max_transfer| SqeFacts { is_async: true, hint, max_transfer, ..facts };
    let cached = |facts| (FileKind::CACHED, ADAPTIVE, Step::Sqe(facts));
    let on = |file, facts| (file, ADAPTIVE, Step::Sqe(facts));
    let (light, heavy) = (Some(LIGHT), Some(LIGHT + 1));
    check(
        &SQE,
        &[
            (cached(never), Route::Request),
            (cached(always), Route::FastPath),
            (on(FileKind::UNKNOWN, always), Route::FastPath),
            (cached(plain_not(always)), Route::Request),
            (cached(with_async(always, AsyncHint::Weighed, light)), Route::FastPath),
            (cached(with_async(always, AsyncHint::Weighed, heavy)), Route::Request),
            (cached(with_async(always, AsyncHint::Weighed, None)), Route::Request),
            (cached(with_async(always, AsyncHint::Worker, light)), Route::Request),
            (cached(with_async(always, AsyncHint::Block, light)), Route::Request),
            (cached(reads), Route::FastPath),
            (on(FileKind::SYNCHRONOUS, reads), Route::FastPath),
            (cached(plain_not(reads)), Route::Request),
            (cached(with_async(reads, AsyncHint::Weighed, None)), Route::Request),
            (on(FileKind::CACHED.without_nowait(IoDirection::Read), reads), Route::Request),
            (on(FileKind::DIRECT, reads), Route::Request),
            (on(FileKind::STREAM, reads), Route::Request),
            (on(FileKind::UNKNOWN, reads), Route::Request),
            (cached(metadata), Route::FastPath),
            ((FileKind::UNKNOWN, WriteMode::Workers, Step::Sqe(metadata)), Route::FastPath),
            ((FileKind::UNKNOWN, WriteMode::Uringlet, Step::Sqe(metadata)), Route::Request),
            (cached(SqeFacts { is_quick: false, ..metadata }), Route::Request),
            (cached(plain_not(metadata)), Route::Request),
            (cached(with_async(metadata, AsyncHint::Weighed, None)), Route::Request),
            (cached(writes), Route::FastPath),
            (cached(plain_not(writes)), Route::Request),
            (cached(with_async(writes, AsyncHint::Weighed, None)), Route::Request),
            (cached(SqeFacts { is_clean: false, ..writes }), Route::Request),
            (cached(SqeFacts { has_budget: false, ..writes }), Route::Request),
            (cached(SqeFacts { may_raise_signal: true, ..writes }), Route::Request),
            ((FileKind::CACHED, WriteMode::Uringlet, Step::Sqe(writes)), Route::Request),
            ((FileKind::CACHED, WriteMode::Workers, Step::Sqe(writes)), Route::Request),
            (on(FileKind::SYNCHRONOUS, writes), Route::Request),
            (on(FileKind::DIRECT, writes), Route::Request),
            (on(FileKind::STREAM, writes), Route::Request),
            (on(FileKind::UNKNOWN, writes), Route::Request),
        ],
    );
}

#[test]
fn request_routes() {
    let polled = |poll| RequestFacts { op: OpRouting { poll, ..NO_OP }, is_async: true, ..PLAIN_REQUEST };
    let (metadata, transfer, receive) = (polled(PollDirection::Never), polled(PollDirection::Streams), polled(PollDirection::Always));
    let on = |file, facts| (file, ADAPTIVE, Step::Request(facts));
    let file = |facts| on(FileKind::CACHED, facts);
    let socket = |facts| on(FileKind::STREAM, facts);
    let with_hint = |facts, hint| RequestFacts { hint, ..facts };
    let with_size = |facts, bytes| RequestFacts { max_transfer: Some(bytes), ..facts };
    let known_empty = |facts| RequestFacts { is_known_empty: true, ..facts };
    let locked = |facts| RequestFacts { is_lockless: false, ..facts };
    let blocking = with_hint(receive, AsyncHint::Block);
    check(
        &REQUEST,
        &[
            (file(RequestFacts { is_async: false, ..metadata }), Route::Try),
            (socket(RequestFacts { is_async: false, ..receive }), Route::Try),
            (file(RequestFacts { op: OpRouting { honours_async: false, ..NO_OP }, ..metadata }), Route::Try),
            (file(metadata), Route::IoWq(BOUNDED)),
            (file(with_size(metadata, LIGHT)), Route::Try),
            (file(with_hint(metadata, AsyncHint::Worker)), Route::IoWq(BOUNDED)),
            (file(with_hint(metadata, AsyncHint::Block)), Route::IoWq(BOUNDED)),
            (file(transfer), Route::IoWq(BOUNDED)),
            (socket(transfer), Route::IoWqTry(BOUNDED)),
            (socket(with_size(receive, LIGHT)), Route::Try),
            (socket(with_size(receive, LIGHT + 1)), Route::IoWqTry(BOUNDED)),
            (socket(receive), Route::IoWqTry(BOUNDED)),
            (socket(known_empty(receive)), Route::PollFirst),
            (socket(with_size(with_hint(receive, AsyncHint::Worker), LIGHT)), Route::IoWqTry(BOUNDED)),
            (socket(known_empty(with_hint(receive, AsyncHint::Worker))), Route::PollFirst),
            (socket(locked(blocking)), Route::IoWqTry(BOUNDED)),
            (socket(known_empty(locked(blocking))), Route::PollFirst),
            (socket(blocking), Route::IoWq(BOUNDED)),
            (socket(known_empty(blocking)), Route::IoWq(BOUNDED)),
            (socket(RequestFacts { poll_fired: true, ..receive }), Route::Try),
            (socket(RequestFacts { hybrid_done: true, ..receive }), Route::Try),
        ],
    );
}

#[test]
fn requests_without_async_are_tried_whatever_their_facts() {
    for row in REQUEST.rows() {
        for (file, mode, step) in REQUEST.inputs(&row) {
            let Step::Request(facts) = step else { unreachable!() };
            assert!(facts.is_async || route(file, mode, step) == Route::Try);
        }
    }
}

#[test]
fn transfer_routes() {
    let write = TransferFacts { is_write: true, tried: Tried::No, is_whole: true, may_raise_signal: false, write: WriteFacts::NONE };
    let read = TransferFacts { is_write: false, ..write };
    let no_nowait = FileKind::CACHED.without_nowait(IoDirection::Write);
    let (recovering, slow) = (WriteSpeed::Recovering, WriteSpeed::Slow);
    let tried = |facts, tried| TransferFacts { tried, ..facts };
    let at = |file, mode, facts| (file, mode, Step::Transfer(facts));
    let file = |facts| at(FileKind::CACHED, ADAPTIVE, facts);
    let direct = |facts| at(FileKind::DIRECT, ADAPTIVE, facts);
    let with = |change: fn(&mut WriteFacts)| {
        let mut facts = write;
        change(&mut facts.write);
        facts
    };
    let with_speed = |speed| TransferFacts { write: WriteFacts { speed, ..WriteFacts::NONE }, ..write };
    let off_submitter = with(|w| w.is_submitter = false);
    let large = with(|w| w.is_large = true);
    let over_budget = with(|w| w.has_budget = false);
    let limited = TransferFacts { may_raise_signal: true, ..write };
    let limited_over_budget = TransferFacts { may_raise_signal: true, ..over_budget };
    let in_part = TransferFacts { is_whole: false, ..write };
    check(
        &TRANSFER,
        &[
            (file(read), Route::Try),
            (at(FileKind::CACHED.without_nowait(IoDirection::Read), ADAPTIVE, read), Route::Offload),
            (file(tried(read, Tried::WouldBlock)), Route::Offload),
            (direct(read), Route::Aio),
            (direct(TransferFacts { may_raise_signal: true, ..read }), Route::Aio),
            (direct(TransferFacts { is_whole: false, ..read }), Route::Try),
            (file(over_budget), Route::Throttle),
            (file(limited_over_budget), Route::Throttle),
            (file(write), Route::Inline),
            (at(no_nowait, ADAPTIVE, write), Route::Inline),
            (file(off_submitter), Route::Try),
            (at(no_nowait, ADAPTIVE, off_submitter), Route::Offload),
            (file(tried(off_submitter, Tried::WouldBlock)), Route::Offload),
            (file(large), Route::Try),
            (at(no_nowait, ADAPTIVE, large), Route::Inline),
            (file(tried(large, Tried::WouldBlock)), Route::Inline),
            (file(tried(large, Tried::Short)), Route::Offload),
            (file(with_speed(recovering)), Route::Try),
            (at(no_nowait, ADAPTIVE, with_speed(recovering)), Route::Offload),
            (file(tried(with_speed(recovering), Tried::WouldBlock)), Route::Offload),
            (file(with_speed(slow)), Route::Offload),
            (file(limited), Route::Offload),
            (file(with(|w| w.has_queued = true)), Route::Offload),
            (file(with(|w| w.waits_for_disk = true)), Route::Offload),
            (at(FileKind::CACHED, WriteMode::Uringlet, write), Route::Offload),
            (at(FileKind::CACHED, WriteMode::Uringlet, over_budget), Route::Throttle),
            (at(FileKind::CACHED, WriteMode::Workers, write), Route::Offload),
            (at(FileKind::CACHED, WriteMode::Workers, over_budget), Route::Offload),
            (direct(write), Route::Aio),
            (direct(over_budget), Route::Aio),
            (direct(in_part), Route::Inline),
            (direct(limited), Route::Offload),
            (direct(limited_over_budget), Route::Throttle),
            (at(FileKind::DIRECT, WriteMode::Workers, write), Route::Aio),
            (at(FileKind::DIRECT, WriteMode::Workers, limited), Route::Offload),
        ],
    );
}

#[test]
fn blocked_routes() {
    let of = |op| BlockedFacts { request: RequestFacts { op, ..PLAIN_REQUEST }, is_quick: false, write: None };
    let inline = |inline| of(OpRouting { inline, ..NO_OP });
    let queued = |run_queue| of(OpRouting { run_queue, ..NO_OP });
    let fast = QueuedWrite { waits_for_disk: false, is_fast: true, is_held_back: false };
    let slow = QueuedWrite { is_fast: false, ..fast };
    let writing = |write| BlockedFacts { write: Some(write), ..queued(RunQueueRule::BufferedWrites) };
    let quick = |facts| BlockedFacts { is_quick: true, ..facts };
    let with = |facts: BlockedFacts, change: fn(&mut RequestFacts)| {
        let mut facts = facts;
        change(&mut facts.request);
        facts
    };
    let fired = |facts| with(facts, |request| request.poll_fired = true);
    let polled = with(of(OpRouting { poll: PollDirection::Always, ..NO_OP }), |request| request.is_async = true);
    let at = |mode, facts| (FileKind::CACHED, mode, Step::Blocked(facts));
    let adaptive = |facts| at(ADAPTIVE, facts);
    let uringlet = |facts| at(WriteMode::Uringlet, facts);
    let held_back = QueuedWrite { is_held_back: true, ..slow };
    let synchronous = QueuedWrite { waits_for_disk: true, ..fast };
    check(
        &BLOCKED,
        &[
            (adaptive(inline(Inline::Never)), Route::IoWq(BOUNDED)),
            (adaptive(inline(Inline::WhileQuick)), Route::IoWq(BOUNDED)),
            (adaptive(quick(inline(Inline::WhileQuick))), Route::Inline),
            (at(WriteMode::Workers, quick(inline(Inline::WhileQuick))), Route::Inline),
            (adaptive(inline(Inline::Always)), Route::Inline),
            (uringlet(inline(Inline::Always)), Route::Inline),
            (uringlet(quick(inline(Inline::WhileQuick))), Route::IoWq(BOUNDED)),
            (adaptive(fired(inline(Inline::Always))), Route::IoWq(BOUNDED)),
            (adaptive(with(inline(Inline::Always), |request| request.is_async = true)), Route::IoWq(BOUNDED)),
            (adaptive(writing(slow)), Route::IoWq(BOUNDED)),
            (uringlet(queued(RunQueueRule::Never)), Route::IoWq(BOUNDED)),
            (uringlet(queued(RunQueueRule::Always)), Route::UringletWorker),
            (uringlet(with(queued(RunQueueRule::Always), |request| request.is_async = true)), Route::IoWq(BOUNDED)),
            (uringlet(queued(RunQueueRule::BufferedWrites)), Route::IoWq(BOUNDED)),
            (uringlet(writing(fast)), Route::UringletWorker),
            (uringlet(writing(slow)), Route::UringletPunt(BOUNDED)),
            (uringlet(writing(held_back)), Route::UringletWorker),
            (uringlet(writing(synchronous)), Route::IoWq(BOUNDED)),
            (uringlet(fired(queued(RunQueueRule::Never))), Route::IoWq(BOUNDED)),
            (uringlet(fired(writing(fast))), Route::UringletWorker),
            (uringlet(fired(writing(slow))), Route::UringletPunt(BOUNDED)),
            (adaptive(polled), Route::IoWqTry(BOUNDED)),
            (adaptive(with(polled, |request| request.hybrid_done = true)), Route::IoWq(BOUNDED)),
            (adaptive(fired(polled)), Route::IoWq(BOUNDED)),
            (adaptive(with(polled, |request| request.hint = AsyncHint::Block)), Route::IoWq(BOUNDED)),
            (
                adaptive(with(polled, |request| {
                    request.hint = AsyncHint::Block;
                    request.is_lockless = false;
                })),
                Route::IoWqTry(BOUNDED),
            ),
        ],
    );
}

#[test]
fn worker_classes() {
    let account = |worker, file| OpRouting { worker, ..NO_OP }.account(file);
    for file in [FileKind::CACHED, FileKind::DIRECT, FileKind::STREAM, FileKind::UNKNOWN] {
        assert_eq!(account(WorkerClass::Bounded, file), Account::Bound);
        assert_eq!(account(WorkerClass::Unbounded, file), Account::Unbound);
    }
    let by_file = [FileKind::CACHED, FileKind::DIRECT, FileKind::STREAM, FileKind::UNKNOWN].map(|file| account(WorkerClass::ByFile, file));
    assert_eq!(by_file, [Account::Bound, Account::Bound, Account::Unbound, Account::Unbound]);
}
