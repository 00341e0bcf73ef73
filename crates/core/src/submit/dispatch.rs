//! The only place that decides how a request goes on: it completes, waits for poll, runs here, or
//! goes to a worker.

use super::aio::submit_aio;
use super::arm::arm;
use super::attempt::{Attempt, Depth, Next};
use super::command::is_for_any_thread;
use super::complete::{complete, complete_timeout};
use super::identity::{capture_rest, must_not_issue};
use super::punt::{punt, punt_to_submitter};
use super::timeout::throttle;
use super::{facts, fault, ring_op};
use crate::apoll::Rearm;
use crate::file::FileKind;
use crate::ops::{Issue, IssueCx, Op, OpFile, table};
use crate::request::{Outcome, Request};
use crate::route::{Inline, RequestFacts, Route, Step, route};
use crate::state::{Ready, UringGuard};
use crate::write::{self, history::Latency};
use uringlet_abi::{cqe, sqe};
use uringlet_sys::Errno;
use uringlet_sys::clock::ticks;
use uringlet_sys::stats::{self, Counter};

/// As [`issue_in_loop`], from where no other request follows.
pub(crate) fn issue(guard: &mut UringGuard, req: Request, depth: Depth) {
    issue_in_loop(guard, req, depth);
}

/// Issues a request, and goes on until it is complete or parked. Inlined into the loop over what
/// is ready (decision 0003).
#[inline(always)]
pub(crate) fn issue_in_loop(guard: &mut UringGuard, mut req: Request, depth: Depth) {
    loop {
        match attempt(guard, &mut req, depth) {
            Attempt::Done(outcome) => return complete(guard, req, outcome),
            Attempt::Continue(_, Next::Restart) => {}
            Attempt::Continue(file, next) => return continue_as(guard, req, file, next),
            Attempt::Parked => return,
        }
    }
}

/// Takes a request to where it goes on.
#[inline(never)]
pub(super) fn continue_as(guard: &mut UringGuard, mut req: Request, file: OpFile, next: Next) {
    guard.hold_buffer(&mut req);
    match next {
        Next::Arm(mask, rearm) => arm(guard, req, file, mask, rearm),
        Next::Punt => punt(guard, req, file),
        Next::PuntToSubmitter => punt_to_submitter(guard, req, file),
        Next::Throttle(throttled) => throttle(guard, req, file, throttled),
        Next::Aio => submit_aio(guard, req, file),
        Next::Restart => issue(guard, req, Depth::Driving),
    }
}

/// Issues and completes what has become ready, and what becomes ready by that.
#[inline]
pub(crate) fn run_ready(guard: &mut UringGuard, depth: Depth) {
    while let Some(ready) = guard.ready.pop_front() {
        match ready {
            Ready::Issue(req) => {
                guard.res.runs_ready = true;
                issue(guard, *req, depth);
                guard.res.runs_ready = false;
            }
            Ready::Complete(req, outcome) => complete(guard, *req, outcome),
            Ready::Expire(req) => complete_timeout(guard, *req, Outcome::ok(0)),
        }
    }
}

/// Issues a request in place, as far as possible: most requests complete here and are never moved.
#[inline(always)]
pub(super) fn attempt(guard: &mut UringGuard, req: &mut Request, depth: Depth) -> Attempt {
    if req.trace.is_injected()
        && let Some(attempt) = fault::intervene(guard, req)
    {
        return attempt;
    }
    let file = match guard.resolve(req) {
        Ok(file) => file,
        // Bad iovecs and headers are found before a bad file.
        Err(errno) => return Attempt::Done(Outcome::err(req.op.import_args().err().unwrap_or(errno))),
    };
    if must_not_issue(guard, req.submitter()) && !is_for_any_thread(guard, req, file) {
        return Attempt::Continue(file, Next::PuntToSubmitter);
    }
    if req.has(sqe::ASYNC) {
        capture_rest(guard, req);
    }
    // Without the flag every request is tried, so the facts are not even gathered.
    if req.has(sqe::ASYNC)
        && let Some(attempt) = attempt_async(guard, req, file)
    {
        return attempt;
    }
    loop {
        let (op, mut cx) = issue_cx(guard, req, file);
        match op.try_issue(&mut cx) {
            Issue::Complete(outcome) => return Attempt::Done(outcome),
            Issue::More(outcome) if req.is_cancelled || !guard.res.has_room() || req.ends_on_purpose() => return Attempt::Done(outcome),
            Issue::More(outcome) => guard.post_outcome(req, outcome.with_flags(cqe::MORE)),
            Issue::Blocks => return attempt_blocking(guard, req, file, depth),
            Issue::RunInline => return run_cached_write(guard, req, file),
            Issue::Throttled(throttled) => return Attempt::Continue(file, Next::Throttle(throttled)),
            Issue::WouldBlock(mask) => return Attempt::Continue(file, Next::Arm(mask, Rearm::TrustEdge)),
            Issue::PollFirst(mask) => return Attempt::Continue(file, Next::Arm(mask, Rearm::Recheck)),
            Issue::EndTurn(mask) => {
                guard.has_requeued = true;
                return Attempt::Continue(file, Next::Arm(mask, Rearm::Recheck));
            }
            Issue::Aio => return Attempt::Continue(file, Next::Aio),
            Issue::RingOp => return ring_op::issue(guard, req, file),
        }
    }
}

/// A request's op, and what it may use.
#[inline(always)]
fn issue_cx<'a>(guard: &'a mut UringGuard, req: &'a mut Request, file: OpFile) -> (&'a mut Op, IssueCx<'a>) {
    let (user_data, traced_as, sqe_flags) = (req.user_data, req.trace.parts(), req.flags);
    let (buf_group, poll_fired) = (req.buf_group, req.poll_fired);
    let (op, held_buffer) = req.op_and_buffer();
    (op, IssueCx { ring: &mut guard.res, file, user_data, traced_as, sqe_flags, buf_group, poll_fired, held_buffer })
}

/// Honours `IOSQE_ASYNC`. `None`: the submitter tries the request.
fn attempt_async(guard: &mut UringGuard, req: &mut Request, file: OpFile) -> Option<Attempt> {
    let (kind, mode, known) = (facts::file_kind(req, file), guard.res.mode, facts::of_request(req));
    let ask = |facts| route(kind, mode, Step::Request(facts));
    let events = req.op.receive_events();
    let mut answer = ask(known);
    // The readiness cache is asked only where its answer counts: a look at it counts as a use of
    // the file's edges.
    if matches!(answer, Route::IoWqTry(_)) && events.is_some() {
        answer = ask(RequestFacts { is_known_empty: guard.res.known_empty(file.fd), ..known });
    }
    match answer {
        Route::Try => None,
        Route::PollFirst => Some(Attempt::Continue(file, Next::Arm(events.unwrap_or_default(), Rearm::TrustEdge))),
        Route::IoWqTry(_) => Some(Attempt::Continue(file, Next::Punt)),
        _ => Some(prepare_for_worker(guard, req, file)),
    }
}

fn prepare_for_worker(guard: &mut UringGuard, req: &mut Request, file: OpFile) -> Attempt {
    let (op, mut cx) = issue_cx(guard, req, file);
    match op.prepare_for_worker(&mut cx) {
        Ok(()) => Attempt::Continue(file, Next::Punt),
        Err(errno) => Attempt::Done(Outcome::err(errno)),
    }
}

/// Runs an op that may sleep on this thread, or leaves it to another one.
#[inline]
fn attempt_blocking(guard: &mut UringGuard, req: &mut Request, file: OpFile, depth: Depth) -> Attempt {
    let is_paced = depth == Depth::Deep && table::of(req.opcode).routing.inline == Inline::WhileQuick;
    match facts::blocked_route(guard, req, file, depth) {
        Route::Inline if is_paced => run_timed(guard, req, file),
        Route::Inline => run_inline(guard, req, file),
        _ => {
            if is_paced {
                guard.metadata_pace.note_sent_away(req.opcode);
            }
            Attempt::Continue(file, Next::Punt)
        }
    }
}

/// As [`run_inline`]. Its time says whether the next operations of its kind may run inline.
fn run_timed(guard: &mut UringGuard, req: &mut Request, file: OpFile) -> Attempt {
    let start = ticks();
    let attempt = run_inline(guard, req, file);
    guard.metadata_pace.note_inline(req.opcode, ticks().wrapping_sub(start));
    attempt
}

/// Runs an op on this thread without the lock: it is expected not to sleep for long.
#[inline]
fn run_inline(guard: &mut UringGuard, req: &mut Request, file: OpFile) -> Attempt {
    guard.hold_buffer(req);
    let op = &mut req.op;
    let outcome = guard.unlocked(|| op.run(file.fd));
    let outcome = req.op.finish(&mut guard.res, outcome);
    if outcome.res == -Errno::ESPIPE.into_raw() && !file.is_fixed && !FileKind::refresh(file.fd).is_seekable() {
        // The number named a seekable file before and names another file now: nothing was done.
        return Attempt::Continue(file, Next::Restart);
    }
    Attempt::Done(outcome)
}

/// Runs a write that the page cache is expected to take. Its latency goes into the file's history.
fn run_cached_write(guard: &mut UringGuard, req: &mut Request, file: OpFile) -> Attempt {
    let start = ticks();
    let attempt = run_inline(guard, req, file);
    if let Attempt::Done(outcome) = &attempt {
        let bytes = outcome.res.max(0) as u64;
        guard.res.throttle.charge(bytes);
        stats::bump(guard.res.ring_index, Counter::WritesInline);
        let latency = Latency::of(ticks().wrapping_sub(start), bytes);
        write::after_inline(guard.res.ring_index, file.fd, latency);
    }
    attempt
}
