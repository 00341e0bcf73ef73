//! Ops that act on the ring or on other requests: poll, timeouts, cancel, buffers and files.

use super::{cancel, command, complete, dispatch, msg_ring, wait};
use crate::apoll::{PollTarget, PollWaiter, Rearm};
use crate::driver::watcher;
use crate::ops::{Op, OpFile, futex::FutexOp, poll::PollOp, timeout::TimeoutOp, timeout::TimeoutSpec};
use crate::request::{Outcome, ReqId, Request, Stage};
use crate::state::{RINGS, Ring, UringGuard};
use crate::throttle::Throttled;
use alloc::sync::Arc;
use uringlet_abi::{Opcode, cqe};
use uringlet_sys::{Errno, fd_table, io, process};

const POLLNVAL: u32 = 32;
/// What a file that cannot be polled always answers: it is ready.
const ALWAYS_READY: u32 = 0x145;

/// Issues such an op.
#[inline(never)]
pub(crate) fn act(guard: &mut UringGuard, mut req: Request, file: OpFile) {
    match &mut req.op {
        Op::Poll(PollOp::Add { .. }) => add_poll(guard, req, file),
        Op::Timeout(TimeoutOp::Add { when, count, .. }) => {
            let (when, count) = (*when, *count);
            add_timeout(guard, req, when, count);
        }
        // Its request is over, or there is none to guard.
        Op::Timeout(TimeoutOp::Link { .. }) => complete(guard, req, Outcome::err(Errno::ECANCELED)),
        Op::Buffers(op) => {
            let outcome = op.act(&mut guard.res);
            complete(guard, req, outcome);
        }
        Op::Poll(op) => {
            let res = change_poll(guard, *op);
            complete(guard, req, res.into());
        }
        Op::Timeout(op) => {
            let res = change_timeout(guard, *op);
            complete(guard, req, res.into());
        }
        Op::MsgRing(_) => msg_ring::send(guard, req, file),
        Op::Cancel(op) => {
            let op = *op;
            let res = cancel::cancel(guard, &op);
            complete(guard, req, res.into());
        }
        Op::Waitid(op) => {
            let op = *op;
            wait::start_waitid(guard, req, op, file);
        }
        Op::Futex(FutexOp::Wait(sleep)) => {
            let sleep = Arc::clone(sleep);
            wait::start_futex(guard, req, &sleep, file);
        }
        Op::Cmd(_) => command::start(guard, req, file),
        _ => complete(guard, req, Outcome::err(Errno::EINVAL)),
    }
}

/// The ring that a descriptor of the program's is.
pub(crate) fn ring_behind(fd: i32) -> Result<&'static Ring, Errno> {
    RINGS.find(fd)
}

/// A worker leaves a ring. What it brought on may be armed now, and perhaps nobody is inside enter().
pub(crate) fn leave(guard: UringGuard) {
    if !guard.is_closing {
        watcher::on_leave(guard);
    }
}

/// Takes an armed or timed request back: the caller completes it.
pub(crate) fn disarm(guard: &mut UringGuard, id: ReqId) -> Option<Request> {
    let parked = guard.unpark(id)?;
    match parked.stage {
        Stage::Armed { fd } => {
            if let Some(poller) = &mut guard.res.poller {
                poller.disarm(fd, id);
            }
        }
        Stage::Throttled { throttled, seq, .. } => guard.res.timers.disarm(throttled.deadline_ns, seq),
        Stage::Timer { deadline_ns, seq } | Stage::LinkTimer { deadline_ns, seq, .. } => {
            guard.res.timers.disarm(deadline_ns, seq);
            guard.res.timers.stop_counting(id);
        }
        // The line skips what is gone.
        Stage::InLine | Stage::Attended { .. } | Stage::Worker { .. } | Stage::Aio | Stage::Command => {}
    }
    Some(parked.req)
}

// Poll ---------------------------------------------------------------------------------------------------------------

fn add_poll(guard: &mut UringGuard, req: Request, file: OpFile) {
    let Op::Poll(PollOp::Add { mask, is_multishot, is_level }) = req.op else { return };
    let ready = match io::poll_now(file.fd, mask) {
        Ok(events) if events & POLLNVAL != 0 => return complete(guard, req, Outcome::err(Errno::EBADF)),
        Ok(events) => events,
        Err(errno) => return complete(guard, req, Outcome::err(errno)),
    };
    // A multishot poll hears of what holds already from its registration, as its first edge.
    if ready != 0 && !is_multishot {
        return complete(guard, req, Outcome::ok(ready as i32));
    }
    if fd_table::ring_index(file.fd).is_some() {
        guard.unlocked(|| RINGS.note_polled(file.fd));
    }
    let node = req.node().cloned();
    let id = guard.park(req, Stage::Armed { fd: file.fd });
    let waiting = PollWaiter { id, mask, is_multishot: is_multishot && !is_level };
    let place = PollTarget { fd: file.fd, node: node.as_ref() };
    // It was looked at just now, but for a multishot poll.
    let look = if is_multishot { Rearm::Recheck } else { Rearm::TrustEdge };
    match guard.res.poller().and_then(|p| p.arm(place, waiting, look)) {
        Ok(()) => start_link_timer(guard, id),
        Err(errno) => {
            let Some(parked) = guard.unpark(id) else { return };
            let outcome = match errno {
                Errno::EPERM if mask & ALWAYS_READY != 0 => Outcome::ok((mask & ALWAYS_READY) as i32),
                // There is nothing to wait for.
                Errno::EPERM => Outcome::err(Errno::EINVAL),
                errno => Outcome::err(errno),
            };
            complete(guard, parked.req, outcome);
        }
    }
}

/// An event of a file, for one of the requests that waited for it.
pub(crate) fn fired(guard: &mut UringGuard, waiting: PollWaiter, events: u32) {
    let Some(parked) = guard.parked(waiting.id) else { return };
    let stage = parked.stage;
    match parked.req.op {
        Op::Poll(PollOp::Add { mask, is_multishot: true, is_level }) => {
            let res = (events & mask) as i32;
            let user_data = parked.req.user_data;
            if !guard.res.has_room() {
                let Some(req) = disarm(guard, waiting.id) else { return };
                return complete(guard, req, Outcome::ok(res));
            }
            guard.res.post(uringlet_abi::Cqe { user_data, res, flags: cqe::MORE });
            if is_level && let Stage::Armed { fd } = stage {
                let node = guard.parked(waiting.id).and_then(|parked| parked.req.node().cloned());
                rearm(guard, waiting, PollTarget { fd, node: node.as_ref() });
            }
        }
        Op::Poll(PollOp::Add { mask, .. }) => {
            let Some(parked) = guard.unpark(waiting.id) else { return };
            complete(guard, parked.req, Outcome::ok((events & mask) as i32));
        }
        _ => {
            let Some(parked) = guard.unpark(waiting.id) else { return };
            dispatch::issue(guard, parked.req, false);
        }
    }
}

/// Arms a parked request anew; one that cannot be says why.
pub(crate) fn rearm(guard: &mut UringGuard, waiting: PollWaiter, place: PollTarget<'_>) {
    if let Err(errno) = guard.res.poller().and_then(|p| p.arm(place, waiting, Rearm::Recheck)) {
        dispatch::give_up(guard, waiting.id, errno);
    }
}

fn change_poll(guard: &mut UringGuard, op: PollOp) -> Result<usize, Errno> {
    let PollOp::Remove { target, mask, user_data } = op else { return Err(Errno::EINVAL) };
    let found = cancel::matching(guard, |_, p| p.req.opcode == Opcode::PollAdd && p.req.user_data == target);
    let &id = found.first().ok_or(Errno::ENOENT)?;
    if mask.is_none() && user_data.is_none() {
        return cancel::cancel_one(guard, id).map(|()| 0);
    }
    let mut req = disarm(guard, id).ok_or(Errno::ENOENT)?;
    if let Some(user_data) = user_data {
        req.user_data = user_data;
    }
    if let (Some(new), Op::Poll(PollOp::Add { mask, .. })) = (mask, &mut req.op) {
        *mask = new;
    }
    // Armed anew by whoever runs what is ready: it looks at the file's readiness again.
    guard.ready.push_back(req);
    Ok(0)
}

// Timeouts -----------------------------------------------------------------------------------------------------------

fn add_timeout(guard: &mut UringGuard, req: Request, when: TimeoutSpec, count: u32) {
    let deadline_ns = when.deadline_ns();
    let seq = guard.res.timers.next_seq();
    let id = guard.park(req, Stage::Timer { deadline_ns, seq });
    arm_timer(guard, deadline_ns, seq, id);
    if count > 0 {
        guard.res.timers.count(count, id);
    }
    start_link_timer(guard, id);
}

fn arm_timer(guard: &mut UringGuard, deadline_ns: u64, seq: u64, id: ReqId) {
    let is_first = guard.res.timers.next_deadline().is_none_or(|first| deadline_ns < first);
    guard.res.timers.arm(deadline_ns, seq, id);
    if is_first && guard.waiters.sleeping > 0 {
        // The driver sleeps for longer than it may now.
        guard.res.cq.note_must_wake();
    }
}

/// Completes what has expired.
pub(crate) fn fire_expired(guard: &mut UringGuard, now_ns: u64) {
    while let Some(id) = guard.res.timers.pop_expired(now_ns) {
        let Some(stage) = guard.parked(id).map(|p| p.stage) else { continue };
        match stage {
            Stage::LinkTimer { guards, .. } => fire_link_timer(guard, id, guards),
            Stage::Throttled { .. } => fire_throttled(guard, id),
            _ => fire_timeout(guard, id, now_ns),
        }
    }
}

/// Parks a write that was put off.
pub(crate) fn park_throttled(guard: &mut UringGuard, req: Request, throttled: Throttled) {
    let seq = guard.res.timers.next_seq();
    let id = guard.park(req, Stage::Throttled { throttled, seq, since_ns: process::monotonic_ns() });
    arm_timer(guard, throttled.deadline_ns, seq, id);
    start_link_timer(guard, id);
}

fn fire_throttled(guard: &mut UringGuard, id: ReqId) {
    if let Some(req) = disarm(guard, id) {
        dispatch::end_pace(guard, req);
    }
}

fn fire_timeout(guard: &mut UringGuard, id: ReqId, now_ns: u64) {
    guard.res.timers.stop_counting(id);
    let has_room = guard.res.has_room();
    let Some(mut parked) = guard.unpark(id) else { return };
    note_timeout(guard);
    let expired_at = parked.deadline_ns();
    let Op::Timeout(TimeoutOp::Add { when, count, is_multishot, etime_is_success }) = &mut parked.req.op else { return };
    let outcome = Outcome { is_failure: !*etime_is_success, ..Outcome::err(Errno::ETIME) };
    if *is_multishot && *count != 1 && has_room {
        *count = count.saturating_sub(1);
        // However short the period: once, and then the program gets its turn.
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

/// Other TIMEOUTs, which count completions, do not count this one.
fn complete_timeout(guard: &mut UringGuard, req: Request, outcome: Outcome) {
    guard.res.timers.skip_next(true);
    complete(guard, req, outcome);
    guard.res.timers.skip_next(false);
}

/// Expiry of a TIMEOUT ends every wait, however many CQEs it waits for.
fn note_timeout(guard: &mut UringGuard) {
    guard.timeouts_fired = guard.timeouts_fired.wrapping_add(1);
    guard.res.cq.note_must_wake();
}

/// Completes TIMEOUTs that have seen their number of CQEs.
#[inline(never)]
pub(crate) fn fire_counted(guard: &mut UringGuard) {
    while let Some(id) = guard.res.timers.pop_counted() {
        if let Some(req) = disarm(guard, id) {
            note_timeout(guard);
            complete_timeout(guard, req, Outcome::ok(0));
        }
    }
}

fn change_timeout(guard: &mut UringGuard, op: TimeoutOp) -> Result<usize, Errno> {
    let (target, is_link) = match op {
        TimeoutOp::Remove { target } => (target, false),
        TimeoutOp::Update { target, is_link, .. } => (target, is_link),
        TimeoutOp::Add { .. } | TimeoutOp::Link { .. } => return Err(Errno::EINVAL),
    };
    let opcode = if is_link { Opcode::LinkTimeout } else { Opcode::Timeout };
    let found = cancel::matching(guard, |_, p| p.req.opcode == opcode && p.req.user_data == target);
    let &id = found.first().ok_or(Errno::ENOENT)?;
    match op {
        TimeoutOp::Update { when, .. } => move_timer(guard, id, when).map(|()| 0),
        _ => cancel::cancel_one(guard, id).map(|()| 0),
    }
}

/// Gives a timer another deadline.
fn move_timer(guard: &mut UringGuard, id: ReqId, when: TimeoutSpec) -> Result<(), Errno> {
    let deadline_ns = when.deadline_ns();
    let parked = guard.parked(id).ok_or(Errno::ENOENT)?;
    let (Stage::Timer { deadline_ns: at, seq } | Stage::LinkTimer { deadline_ns: at, seq, .. }) = &mut parked.stage else {
        return Err(Errno::EALREADY);
    };
    let (old, seq) = (core::mem::replace(at, deadline_ns), *seq);
    if let Op::Timeout(TimeoutOp::Add { when: period, .. }) = &mut parked.req.op {
        *period = when;
    }
    guard.res.timers.disarm(old, seq);
    guard.res.timers.arm(deadline_ns, seq, id);
    if guard.waiters.sleeping > 0 {
        guard.res.cq.note_must_wake();
    }
    Ok(())
}

// Link timeouts ------------------------------------------------------------------------------------------------------

/// A request was parked: if a LINK_TIMEOUT follows it, the clock starts now.
pub(crate) fn start_link_timer(guard: &mut UringGuard, id: ReqId) {
    let Some(parked) = guard.parked(id) else { return };
    if let Some(timer) = parked.req.link_timer {
        // Parked again after a try: the timer guards it under its new name.
        if let Some(Stage::LinkTimer { guards, .. }) = guard.parked(timer).map(|p| &mut p.stage) {
            *guards = id;
        }
        return;
    }
    if parked.req.next.as_ref().is_none_or(|next| next.opcode != Opcode::LinkTimeout) {
        return;
    }
    let Some(mut timeout) = parked.req.next.take() else { return };
    parked.req.next = timeout.next.take();
    let Op::Timeout(TimeoutOp::Link { when }) = timeout.op else { return };
    let deadline_ns = when.deadline_ns();
    let seq = guard.res.timers.next_seq();
    let timer = guard.park(*timeout, Stage::LinkTimer { deadline_ns, seq, guards: id });
    guard.res.timers.arm(deadline_ns, seq, timer);
    if let Some(parked) = guard.parked(id) {
        parked.req.link_timer = Some(timer);
    }
    if guard.waiters.sleeping > 0 {
        guard.res.cq.note_must_wake();
    }
}

/// The guarded request is over first.
#[inline(never)]
pub(crate) fn end_link_timer(guard: &mut UringGuard, timer: ReqId) {
    if let Some(req) = disarm(guard, timer) {
        complete(guard, req, Outcome::errno_ok(Errno::ECANCELED));
    }
}

/// The time is over first: the guarded request is cancelled.
fn fire_link_timer(guard: &mut UringGuard, timer: ReqId, guards: ReqId) {
    let Some(parked) = guard.unpark(timer) else { return };
    let mut is_wait = false;
    if let Some(guarded) = guard.parked(guards) {
        guarded.req.link_timer = None;
        is_wait = wait::is_wait(guarded.req.opcode);
    }
    let outcome = match cancel::cancel_one(guard, guards) {
        // The kernel counts these, here too.
        Ok(()) if is_wait => Outcome::ok(1),
        Ok(()) => Outcome::errno_ok(Errno::ETIME),
        Err(errno) => Outcome::errno_ok(errno),
    };
    complete(guard, parked.req, outcome);
}
