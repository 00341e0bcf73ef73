//! The end of a request: its CQE, and what the completion releases. Timeouts that count completions
//! fire, drained chains become ready, link timers end, the next link becomes ready or the chain is
//! cancelled: the kernel's order.
//!
//! Nothing else is issued or completed here. What becomes ready is pushed to the ring's `ready`
//! queue, and `dispatch::run_ready` does it.

use crate::ops::{Op, timeout::TimeoutOp};
use crate::request::{FileTarget, Notification, Outcome, ReqId, Request};
use crate::state::{Ready, UringGuard, drain::DrainPass};
use crate::trace;
use alloc::boxed::Box;
use uringlet_abi::{Cqe, Opcode, cqe, sqe};
use uringlet_sys::fault_plan::FaultActions;
use uringlet_sys::{Errno, io};

/// Completes a request: posts its CQE and releases what waited for it.
#[inline(never)]
pub(crate) fn complete(guard: &mut UringGuard, mut req: Request, outcome: Outcome) {
    complete_in_place(guard, &mut req, outcome);
}

/// As [`complete`], without moving the request.
#[inline]
pub(super) fn complete_in_place(guard: &mut UringGuard, req: &mut Request, mut outcome: Outcome) {
    // EVENTFD_ASYNC: a completion counts as asynchronous if IOSQE_ASYNC asked for it, whichever
    // thread ran the request.
    if !guard.res.lock_owner.is_submitter() || (req.has(sqe::ASYNC) && req.prep_error().is_none()) {
        guard.res.cq.note_async();
    }
    if outcome.res == -Errno::ECANCELED.into_raw() {
        // A cancelled transfer reports the bytes that it moved before.
        outcome.res = req.op.bytes_done().map_or(outcome.res, |n| n as i32);
    }
    if req.fault().is_some_and(|fault| fault.has(FaultActions::BREAKS_LINK)) {
        outcome.is_failure = true;
    }
    if let Some(selected) = req.op.take_selected() {
        outcome.flags |= guard.res.buf_groups.put(selected);
    }
    if let Some(notification) = req.take_rare(|rare| &mut rare.notification) {
        post_with_notification(guard, req, outcome, notification);
    } else {
        guard.post_outcome(req, outcome);
    }
    release_dependents(guard, req, outcome.is_failure);
    if guard.res.has_nodes {
        release_nodes(guard, req);
    }
}

/// Gives up the files and the buffer of a completed request.
#[cold]
fn release_nodes(guard: &mut UringGuard, req: &mut Request) {
    if let FileTarget::Held(node) | FileTarget::Duplicate(_, node) = core::mem::replace(&mut req.target, FileTarget::None) {
        guard.res.release_file(node);
    }
    if let Some(node) = req.op.take_file() {
        guard.res.release_file(node);
    }
    if let Some(node) = req.take_rare(|rare| &mut rare.registered_file) {
        guard.res.release_file(node);
    }
    if let Some(node) = req.take_rare(|rare| &mut rare.buffer) {
        guard.res.release_buffer(node);
    }
}

/// A CQE and the notification behind it: the data was copied, so the buffer is free at once.
#[cold]
fn post_with_notification(guard: &mut UringGuard, req: &Request, outcome: Outcome, notification: Notification) {
    let more = if notification.is_announced { cqe::MORE } else { 0 };
    guard.post_outcome(req, outcome.with_flags(more));
    let notified = Outcome { flags: cqe::NOTIF, ..Outcome::ok(notification.res) };
    if trace::is_on() {
        guard.trace_outcome(req, notified, true);
    }
    guard.res.post(Cqe { user_data: notification.user_data, res: notified.res, flags: notified.flags });
}

/// What waited for a completed request: counting timeouts, drained chains, its link timer, its next
/// link.
#[inline]
fn release_dependents(guard: &mut UringGuard, req: &mut Request, is_failure: bool) {
    guard.in_flight -= 1;
    if guard.res.timers.counts_completions() {
        fire_counted(guard);
    }
    if !guard.drain.is_empty() {
        release_drained(guard);
    }
    if let Some(timer) = req.take_rare(|rare| &mut rare.link_timer) {
        end_link_timer(guard, timer);
    }
    if req.next.is_some() {
        run_next_link(guard, req, is_failure);
    }
}

/// Ends a parked request that can make no more progress.
pub(crate) fn fail(guard: &mut UringGuard, id: ReqId, errno: Errno) {
    if let Some(parked) = guard.unpark(id) {
        complete(guard, parked.req, Outcome::err(errno));
    }
}

// Chains ----------------------------------------------------------------------------------------

/// Makes the next link of a completed request ready, or cancels the rest of its chain.
#[inline(never)]
fn run_next_link(guard: &mut UringGuard, req: &mut Request, is_failure: bool) {
    end_unstarted_timer(guard, req);
    let Some(next) = req.next.take() else { return };
    if is_failure && !req.has(sqe::IO_HARDLINK) {
        let is_silent = req.has(sqe::CQE_SKIP_SUCCESS);
        return cancel_chain(guard, next, is_silent);
    }
    guard.ready.push_back(Ready::Issue(next));
}

/// A LINK_TIMEOUT whose request never had to wait ends before it starts: cancelled, which is no
/// failure. As in the kernel, one whose time is over by then found nothing to cancel. A request
/// without a file does not start it.
fn end_unstarted_timer(guard: &mut UringGuard, req: &mut Request) {
    let Some(timer) = take_unstarted_timer(req) else { return };
    let expires = matches!(&timer.op, Op::Timeout(TimeoutOp::Link { when }) if when.expires_at_once());
    let errno = if expires && has_file(guard, &req.target) { Errno::ENOENT } else { Errno::ECANCELED };
    guard.ready.push_back(Ready::Complete(timer, Outcome::errno_ok(errno)));
}

fn take_unstarted_timer(req: &mut Request) -> Option<Box<Request>> {
    let is_timer = |next: &Request| next.opcode == Opcode::LinkTimeout && next.prep_error().is_none();
    if !req.next.as_deref().is_some_and(is_timer) {
        return None;
    }
    let mut timer = req.next.take()?;
    *req.next = timer.next.take();
    Some(timer)
}

/// Whether the file is there, if the request has one.
fn has_file(guard: &UringGuard, target: &FileTarget) -> bool {
    match target {
        FileTarget::None | FileTarget::Held(_) | FileTarget::Duplicate(..) => true,
        FileTarget::Fixed(index) => guard.res.files.get(*index).is_some(),
        FileTarget::Fd(fd) => io::file_flags(*fd).is_ok(),
    }
}

/// Every request of a broken chain: ECANCELED.
#[inline(never)]
fn cancel_chain(guard: &mut UringGuard, head: Box<Request>, is_silent: bool) {
    let mut next = Some(head);
    while let Some(mut req) = next {
        next = req.next.take();
        req.flags &= !sqe::CQE_SKIP_SUCCESS;
        req.is_silent = is_silent;
        // Its notification is not announced: no F_MORE.
        if let Some(notification) = req.take_rare(|rare| &mut rare.notification) {
            req.rare_mut().notification = Some(Notification { is_announced: false, ..notification });
        }
        let errno = req.prep_error().unwrap_or(Errno::ECANCELED);
        guard.ready.push_back(Ready::Complete(req, Outcome::err(errno)));
    }
}

/// A chain with a malformed request: that one reports its errno, the others are cancelled.
#[inline(never)]
pub(super) fn fail_chain(guard: &mut UringGuard, mut head: Request) {
    let mut rest = head.take_rest();
    let errno = head.prep_error().unwrap_or(Errno::ECANCELED);
    let is_silent = head.has(sqe::CQE_SKIP_SUCCESS);
    complete(guard, head, Outcome::err(errno));
    if let Some(timer) = take_unstarted_timer(&mut rest) {
        guard.ready.push_back(Ready::Complete(timer, Outcome::errno_ok(Errno::ECANCELED)));
    }
    if let Some(next) = rest.next.take() {
        cancel_chain(guard, next, is_silent);
    }
}

/// Moves drained chains whose turn has come to the ready ones.
#[inline(never)]
pub(super) fn release_drained(guard: &mut UringGuard) {
    let mut pass = DrainPass::default();
    loop {
        let busy = guard.in_flight - guard.drain.requests();
        let Some(head) = guard.drain.pop(busy, &mut pass) else { return };
        guard.ready.push_back(Ready::Issue(Box::new(head)));
    }
}

// Timeouts --------------------------------------------------------------------------------------

/// The guarded request ended before its LINK_TIMEOUT expired.
#[inline(never)]
fn end_link_timer(guard: &mut UringGuard, timer: ReqId) {
    if let Some(req) = guard.disarm(timer) {
        guard.ready.push_back(Ready::Complete(Box::new(req), Outcome::errno_ok(Errno::ECANCELED)));
    }
}

/// Completes TIMEOUTs that have seen their number of CQEs.
#[inline(never)]
pub(super) fn fire_counted(guard: &mut UringGuard) {
    while let Some(id) = guard.res.timers.pop_counted() {
        if let Some(req) = guard.disarm(id) {
            note_timeout(guard);
            guard.ready.push_back(Ready::Expire(Box::new(req)));
        }
    }
}

/// Completes a TIMEOUT. Its CQE does not count for the TIMEOUTs that count completions.
pub(super) fn complete_timeout(guard: &mut UringGuard, req: Request, outcome: Outcome) {
    guard.res.timers.skip_next(true);
    complete(guard, req, outcome);
    guard.res.timers.skip_next(false);
}

/// The expiry of a TIMEOUT ends every wait, however many CQEs it waits for.
pub(super) fn note_timeout(guard: &mut UringGuard) {
    guard.timeouts_fired = guard.timeouts_fired.wrapping_add(1);
    guard.res.cq.note_must_wake();
}
