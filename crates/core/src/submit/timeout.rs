//! TIMEOUT, TIMEOUT_REMOVE, delayed writes, and what an expired timer does.

use super::attempt::Attempt;
use super::cancel;
use super::clock::deadline;
use super::complete::{complete, complete_timeout, note_timeout};
use super::link_timeout;
use super::punt::punt;
use crate::ops::{Op, OpFile, table, timeout::TimeoutOp, timeout::TimeoutSpec};
use crate::request::{OptionalFd, Outcome, ReqId, Request, Stage};
use crate::state::{Ready, UringGuard};
use crate::throttle::Throttled;
use alloc::boxed::Box;
use uringlet_abi::{Opcode, cqe};
use uringlet_sys::{Errno, process};

/// TIMEOUT.
pub(super) fn add(guard: &mut UringGuard, req: &mut Request, when: TimeoutSpec, count: u32) -> Attempt {
    let deadline_ns = deadline(guard, when);
    let seq = guard.res.timers.next_seq();
    let id = guard.park(req.take(), Stage::Timer { deadline_ns, seq });
    arm_timer(guard, deadline_ns, seq, id);
    if count > 0 {
        guard.res.timers.count(count, id);
    }
    link_timeout::start(guard, id);
    Attempt::Parked
}

/// A clock has stepped: the deadlines on it move.
#[cold]
pub(crate) fn follow_clocks(guard: &mut UringGuard) {
    for id in guard.matching(|_, parked| matches!(parked.stage, Stage::Timer { .. } | Stage::LinkTimer { .. })) {
        let Some(Op::Timeout(op)) = guard.parked(id).map(|parked| &mut parked.req.op) else { continue };
        if let Some(when) = op.when().copied().filter(|when| when.follows_clock()) {
            let _ = move_timer(guard, id, when);
        }
    }
}

pub(super) fn arm_timer(guard: &mut UringGuard, deadline_ns: u64, seq: u64, id: ReqId) {
    let is_first = guard.res.timers.next_deadline().is_none_or(|first| deadline_ns < first);
    guard.res.timers.arm(deadline_ns, seq, id);
    if is_first && guard.waiters.sleeping > 0 {
        // The driver's sleep would last beyond the new deadline.
        guard.res.cq.note_must_wake();
    }
}

/// TIMEOUT_REMOVE: removes a timeout or gives it another deadline.
pub(super) fn change(guard: &mut UringGuard, op: TimeoutOp) -> Result<usize, Errno> {
    let (target, is_link) = match op {
        TimeoutOp::Remove { target } => (target, false),
        TimeoutOp::Update { target, is_link, .. } => (target, is_link),
        TimeoutOp::Add { .. } | TimeoutOp::Link { .. } => return Err(Errno::EINVAL),
    };
    let opcode = if is_link { Opcode::LinkTimeout } else { Opcode::Timeout };
    let found = cancel::find(guard, Some(target), |_, p| p.req.opcode == opcode);
    let &id = found.first().ok_or(Errno::ENOENT)?;
    if cancel::is_over(guard, id) {
        return Err(Errno::ENOENT);
    }
    match op {
        TimeoutOp::Update { when, .. } => move_timer(guard, id, when).map(|()| 0),
        _ => cancel::cancel_one(guard, id).map(|()| 0),
    }
}

/// Gives a timer another deadline.
fn move_timer(guard: &mut UringGuard, id: ReqId, when: TimeoutSpec) -> Result<(), Errno> {
    let deadline_ns = deadline(guard, when);
    let parked = guard.parked(id).ok_or(Errno::ENOENT)?;
    let (Stage::Timer { deadline_ns: at, seq } | Stage::LinkTimer { deadline_ns: at, seq, .. }) = &mut parked.stage else {
        return Err(Errno::EALREADY);
    };
    let (old, seq) = (core::mem::replace(at, deadline_ns), *seq);
    if let Op::Timeout(op) = &mut parked.req.op
        && let Some(former) = op.when()
    {
        *former = when;
    }
    guard.res.timers.disarm(old, seq);
    guard.res.timers.arm(deadline_ns, seq, id);
    if guard.waiters.sleeping > 0 {
        guard.res.cq.note_must_wake();
    }
    Ok(())
}

/// Parks a write until the throttle lets it run: the kernel would make its writer sleep now.
#[cold]
pub(super) fn throttle(guard: &mut UringGuard, mut req: Request, file: OpFile, throttled: Throttled) {
    if let Err(errno) = req.op.import_args() {
        return complete(guard, req, Outcome::err(errno));
    }
    req.queued_on = OptionalFd::some(file.fd);
    let seq = guard.res.timers.next_seq();
    let id = guard.park(req, Stage::Throttled { throttled, seq, since_ns: process::monotonic_ns() });
    arm_timer(guard, throttled.deadline_ns, seq, id);
    link_timeout::start(guard, id);
}

/// Completes what has expired.
pub(crate) fn fire_expired(guard: &mut UringGuard, now_ns: u64) {
    while let Some(id) = guard.res.timers.pop_expired(now_ns) {
        let Some(stage) = guard.parked(id).map(|p| p.stage) else { continue };
        match stage {
            Stage::LinkTimer { guards, .. } => fire_link_timer(guard, id, guards),
            Stage::Throttled { .. } => fire_throttled(guard, id),
            Stage::Delayed { .. } => fire_delayed(guard, id),
            _ => fire_timeout(guard, id, now_ns),
        }
    }
}

/// The delay of a request, on purpose, is over.
#[cold]
fn fire_delayed(guard: &mut UringGuard, id: ReqId) {
    if let Some(req) = guard.disarm(id) {
        guard.ready.push_back(Ready::Issue(Box::new(req)));
    }
}

/// The delay of a write is over: it goes to a worker, which may sleep in it.
fn fire_throttled(guard: &mut UringGuard, id: ReqId) {
    let Some(mut req) = guard.disarm(id) else { return };
    match guard.resolve(&mut req) {
        Ok(file) => punt(guard, req, file),
        Err(errno) => complete(guard, req, Outcome::err(errno)),
    }
}

fn fire_timeout(guard: &mut UringGuard, id: ReqId, now_ns: u64) {
    guard.res.timers.stop_counting(id);
    let Some(mut parked) = guard.unpark(id) else { return };
    let has_room = guard.res.has_room() && !parked.req.ends_on_purpose();
    note_timeout(guard);
    let expired_at = parked.deadline_ns();
    let Op::Timeout(TimeoutOp::Add { when, count, is_multishot, etime_is_success }) = &mut parked.req.op else { return };
    let outcome = Outcome { is_failure: !*etime_is_success, ..Outcome::err(Errno::ETIME) };
    if *is_multishot && *count != 1 && has_room {
        *count = count.saturating_sub(1);
        // However short the period, it expires once a call, so that the program makes progress.
        let next = expired_at.saturating_add(when.period_ns()).max(now_ns + 1);
        let seq = guard.res.timers.next_seq();
        guard.res.timers.skip_next(true);
        guard.post_outcome(&parked.req, outcome.with_flags(cqe::MORE));
        guard.res.timers.skip_next(false);
        let id = guard.park(parked.req, Stage::Timer { deadline_ns: next, seq });
        guard.res.timers.arm(next, seq, id);
        return;
    }
    complete_timeout(guard, parked.req, outcome);
}

/// A LINK_TIMEOUT expired first: cancels the guarded request.
fn fire_link_timer(guard: &mut UringGuard, timer: ReqId, guards: ReqId) {
    let Some(parked) = guard.unpark(timer) else { return };
    let mut is_wait = false;
    if let Some(guarded) = guard.parked(guards) {
        guarded.req.take_rare(|rare| &mut rare.link_timer);
        is_wait = table::of(guarded.req.opcode).is_wait;
    }
    let outcome = match cancel::cancel_one(guard, guards) {
        // For these the kernel reports the number of cancelled requests, here too.
        Ok(()) if is_wait => Outcome::ok(1),
        Ok(()) => Outcome::errno_ok(Errno::ETIME),
        Err(errno) => Outcome::errno_ok(errno),
    };
    complete(guard, parked.req, outcome);
}
