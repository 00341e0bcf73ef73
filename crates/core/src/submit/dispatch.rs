//! The only place that decides how a request goes on: it completes, waits for poll, runs here, or goes to a worker.

use super::aio::submit_aio;
use super::arm::arm;
use super::attempt::{Attempt, Depth, Next};
use super::complete::complete;
use super::punt::punt;
use super::timeout::throttle;
use super::{hybrid, ring_op};
use crate::apoll::Rearm;
use crate::file::FileKind;
use crate::ops::hint::is_for_submitter;
use crate::ops::{Inline, Issue, IssueCx, OpFile, table};
use crate::request::{Outcome, Request};
use crate::state::UringGuard;
use crate::write::{self, WriteMode, history::Latency};
use uringlet_abi::{cqe, sqe};
use uringlet_sys::Errno;
use uringlet_sys::clock::ticks;
use uringlet_sys::stats::{self, Counter};

/// Issues a request, and goes on until it is complete or parked.
pub(crate) fn issue(guard: &mut UringGuard, mut req: Request, depth: Depth) {
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
pub(super) fn continue_as(guard: &mut UringGuard, req: Request, file: OpFile, next: Next) {
    match next {
        Next::Arm(mask, rearm) => arm(guard, req, file, mask, rearm),
        Next::Punt => punt(guard, req, file),
        Next::Throttle(throttled) => throttle(guard, req, file, throttled),
        Next::Aio => submit_aio(guard, req, file),
        Next::Restart => issue(guard, req, Depth::Deep),
    }
}

/// Issues what has become ready.
#[inline]
pub(crate) fn run_ready(guard: &mut UringGuard, depth: Depth) {
    while let Some(req) = guard.ready.pop_front() {
        issue(guard, req, depth);
    }
}

/// Issues a request in place, as far as possible: most requests complete here and are never moved.
#[inline]
pub(super) fn attempt(guard: &mut UringGuard, req: &mut Request, depth: Depth) -> Attempt {
    let file = match guard.resolve(req) {
        Ok(file) => file,
        // Bad iovecs and headers are found before a bad file.
        Err(errno) => return Attempt::Done(Outcome::err(req.op.import_args().err().unwrap_or(errno))),
    };
    let is_for_worker = req.has(sqe::ASYNC) && !req.poll_fired && !req.hybrid_done && req.op.may_run() && !is_for_submitter(&req.op);
    if is_for_worker && hybrid::is_for(req, file) {
        return Attempt::Continue(file, hybrid::first_step(guard, req, file));
    }
    loop {
        let mut cx = IssueCx { ring: &mut guard.res, file, sqe_flags: req.flags, buf_group: req.buf_group, poll_fired: req.poll_fired };
        if is_for_worker {
            return match req.op.prepare_for_worker(&mut cx) {
                Ok(()) => Attempt::Continue(file, Next::Punt),
                Err(errno) => Attempt::Done(Outcome::err(errno)),
            };
        }
        match req.op.try_issue(&mut cx) {
            Issue::Complete(outcome) => return Attempt::Done(outcome),
            Issue::More(outcome) if req.is_cancelled || !guard.res.has_room() => return Attempt::Done(outcome),
            Issue::More(outcome) => guard.post_outcome(req, outcome.with_flags(cqe::MORE)),
            Issue::Blocks if runs_inline(req, depth, guard.res.mode) => return run_inline(guard, req, file),
            Issue::RunInline => return run_cached_write(guard, req, file),
            Issue::Blocks => return Attempt::Continue(file, Next::Punt),
            Issue::Throttled(throttled) => return Attempt::Continue(file, Next::Throttle(throttled)),
            Issue::WouldBlock(mask) => return Attempt::Continue(file, Next::Arm(mask, Rearm::TrustEdge)),
            Issue::PollFirst(mask) => return Attempt::Continue(file, Next::Arm(mask, Rearm::Recheck)),
            Issue::Aio => return Attempt::Continue(file, Next::Aio),
            Issue::RingOp => return ring_op::issue(guard, req, file),
        }
    }
}

/// Whether an op that may sleep runs on this thread all the same.
fn runs_inline(req: &Request, depth: Depth, mode: WriteMode) -> bool {
    if req.has(sqe::ASYNC) || req.poll_fired {
        return false;
    }
    match table::of(req.opcode).inline {
        Inline::Always => true,
        Inline::Shallow => depth == Depth::Shallow && mode != WriteMode::Uringlet,
        Inline::Never => false,
    }
}

/// Runs an op on this thread without the lock: it is expected not to sleep for long.
#[inline]
fn run_inline(guard: &mut UringGuard, req: &mut Request, file: OpFile) -> Attempt {
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
