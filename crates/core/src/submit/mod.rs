//! From SQEs to requests to completions.

pub(crate) mod act;
pub(crate) mod cancel;
pub(crate) mod command;
pub(crate) mod dispatch;
mod fast_path;
pub(crate) mod hybrid;
mod msg_ring;
pub(crate) mod punt;
mod wait;

use dispatch::Now;

use crate::ops::table::{self, OpDef};
use crate::ops::{Op, PrepCx, net};
use crate::request::{Notification, Outcome, Request, Target};
use crate::state::{LockOwner, UringGuard, drain::DrainQueue};
use alloc::boxed::Box;
use alloc::vec::Vec;
use fast_path::{FastPath, fast_path};
use uringlet_abi::{Cqe, Opcode, Sqe, cqe, setup, sqe};
use uringlet_sys::Errno;
use uringlet_sys::lock::futex_wait;
use uringlet_sys::stats::{self, Counter};

const SQE_FLAGS: u8 =
    sqe::FIXED_FILE | sqe::IO_DRAIN | sqe::IO_LINK | sqe::IO_HARDLINK | sqe::ASYNC | sqe::BUFFER_SELECT | sqe::CQE_SKIP_SUCCESS;
const LINKS: u8 = sqe::IO_LINK | sqe::IO_HARDLINK;

/// Consumes up to `to_submit` SQEs; how many were.
#[inline(always)]
pub(crate) fn submit(guard: &mut UringGuard, to_submit: u32) -> u32 {
    if to_submit == 0 {
        return 0;
    }
    let mut baton = loop {
        match guard.baton.take() {
            Some(baton) => break baton,
            // Another thread submits: wait for its end.
            None => wait_for_baton(guard),
        }
    };
    if guard.is_shared() {
        baton.resync_head(&guard.res.memory);
    }
    let n = baton.pending(&guard.res.memory).min(to_submit);
    let is_shallow = n <= dispatch::SHALLOW;
    let mut chain = Chain::default();
    let mut submitted = 0;
    for _ in 0..n {
        // Where processes share the ring, another one may take the next as soon as the lock is let go.
        let is_shared = guard.is_shared();
        if is_shared && !baton.resync_head(&guard.res.memory) {
            break;
        }
        let Some(index) = baton.next(&guard.res.memory) else { break };
        let sqe = guard.res.memory.sqe(index);
        // Or begin to share it just then.
        if is_shared || guard.was_forked {
            baton.publish(&guard.res.memory);
        }
        submitted += 1;
        let went_well = submit_sqe(guard, &sqe, index, &mut chain, is_shallow);
        if !went_well && guard.res.setup & setup::SUBMIT_ALL == 0 {
            break;
        }
    }
    chain.finish(guard, is_shallow);
    if !guard.drain.is_empty() {
        dispatch::run_drained(guard);
        dispatch::run_ready(guard, is_shallow);
    }
    if !guard.is_shared() {
        baton.publish(&guard.res.memory);
    }
    guard.baton = Some(baton);
    if guard.waiters.for_baton > 0 {
        guard.res.cq.note_must_wake();
    }
    stats::add(guard.res.ring_index, Counter::Submitted, u64::from(submitted));
    submitted
}

#[cold]
fn wait_for_baton(guard: &mut UringGuard) {
    let ring = guard.ring;
    let seen = ring.bell.load(core::sync::atomic::Ordering::Acquire);
    guard.waiters.sleeping += 1;
    guard.waiters.for_baton += 1;
    guard.unlocked(|| {
        // A millisecond at most: a submitter that ended without anybody to wake rings no bell.
        let _ = futex_wait(&ring.bell, seen, uringlet_sys::process::monotonic_ns() + 1_000_000);
    });
    guard.waiters.for_baton -= 1;
    guard.waiters.sleeping -= 1;
}

/// The link chain that is being put together.
#[derive(Default)]
struct Chain {
    members: Vec<Request>,
    has_failed: bool,
    drains: bool,
}

impl Chain {
    /// A LINK_TIMEOUT guards the request right before it, which is no other LINK_TIMEOUT.
    fn refuse_second_timeout(&self, req: &mut Request) {
        if req.opcode == Opcode::LinkTimeout && self.members.last().is_some_and(|last| last.opcode == Opcode::LinkTimeout) {
            req.op = Op::Malformed(Errno::EINVAL);
        }
    }

    /// Issues what was collected, as one chain.
    fn finish(&mut self, guard: &mut UringGuard, is_shallow: bool) {
        let (has_failed, drains) = (core::mem::take(&mut self.has_failed), core::mem::take(&mut self.drains));
        let mut head: Option<Box<Request>> = None;
        while let Some(mut req) = self.members.pop() {
            req.next = head;
            head = Some(Box::new(req));
        }
        if let Some(head) = head {
            enter_chain(guard, *head, has_failed, drains, is_shallow);
        }
    }
}

/// One SQE: on its own it is issued at once, in a chain when the chain is complete. `false` if it was malformed.
#[inline(always)]
fn submit_sqe(guard: &mut UringGuard, sqe: &Sqe, index: u32, chain: &mut Chain, is_shallow: bool) -> bool {
    let is_after_link = !chain.members.is_empty();
    let mut tried = FastPath::Fallback;
    if !is_after_link && guard.drain.is_idle() && guard.res.setup & setup::IOPOLL == 0 {
        tried = fast_path(guard, sqe);
        if let FastPath::Done(outcome) = tried {
            post_fast_path(guard, sqe, outcome);
            return true;
        }
    }
    let mut req = Request::new(sqe);
    prep(guard, sqe, is_after_link, &mut req);
    match &mut req.op {
        Op::Rw(op) => tried.tell(op),
        Op::Cmd(op) => op.read_big_sqe(&guard.res.memory, index),
        _ => {}
    }
    if is_after_link {
        chain.refuse_second_timeout(&mut req);
    }
    guard.in_flight += 1;
    if !is_after_link && sqe.flags & LINKS == 0 && guard.drain.is_idle() {
        let went_well = req.prep_error().is_none();
        submit_alone(guard, &mut req, is_shallow);
        return went_well;
    }
    // It may wait for others, and the program may reuse what its SQE names once that is consumed.
    if req.prep_error().is_none()
        && let Err(errno) = req.op.import_args()
    {
        req.op = Op::Malformed(errno);
    }
    let went_well = req.prep_error().is_none();
    chain.has_failed |= !went_well;
    chain.drains |= sqe.flags & sqe::IO_DRAIN != 0;
    chain.drains |= !is_after_link && guard.drain.take_next();
    chain.members.push(req);
    if sqe.flags & LINKS != 0 {
        // A malformed request inside a chain breaks the chain, not the submission.
        return true;
    }
    chain.finish(guard, is_shallow);
    went_well
}

#[inline(always)]
fn post_fast_path(guard: &mut UringGuard, sqe: &Sqe, outcome: Outcome) {
    if sqe.flags & sqe::ASYNC != 0 {
        guard.res.cq.note_async();
    }
    guard.res.post(Cqe { user_data: sqe.user_data, res: outcome.res, flags: outcome.flags });
    if guard.res.timers.counts_completions() {
        act::fire_counted(guard);
    }
}

/// A request on its own. What can be completed at once is, without being moved.
#[inline]
fn submit_alone(guard: &mut UringGuard, req: &mut Request, is_shallow: bool) {
    let now = match req.op {
        Op::Malformed(errno) => Now::Done(Outcome::err(errno)),
        _ => dispatch::try_now(guard, req, is_shallow),
    };
    match now {
        Now::Done(outcome) => end(guard, req, outcome),
        Now::Later(file, step) => dispatch::later(guard, req.take(), file, step),
    }
    if !guard.ready.is_empty() {
        dispatch::run_ready(guard, is_shallow);
    }
}

/// A chain is complete: it runs, waits for what is before it, or fails as a whole.
#[inline(never)]
fn enter_chain(guard: &mut UringGuard, head: Request, has_failed: bool, drains: bool, is_shallow: bool) {
    if has_failed {
        dispatch::fail_chain(guard, head);
    } else if !guard.drain.is_idle() && (drains || !ends_draining(guard, &head)) {
        guard.drain.push(head, drains);
    } else {
        dispatch::issue(guard, head, is_shallow);
    }
    dispatch::run_ready(guard, is_shallow);
}

fn ends_draining(guard: &mut UringGuard, head: &Request) -> bool {
    let in_flight = guard.in_flight;
    guard.drain.ends_with(head, in_flight)
}

/// Fills in what the SQE asks for; a malformed one is remembered as such.
#[inline]
fn prep(guard: &mut UringGuard, sqe: &Sqe, is_after_link: bool, req: &mut Request) {
    let cx = PrepCx { setup: guard.res.setup, sqe_flags: sqe.flags, is_after_link };
    let prepared = match Opcode::from_u8(sqe.opcode) {
        Some(opcode) => {
            let def = table::of(opcode);
            req.opcode = opcode;
            if def.needs_file {
                req.target = if sqe.flags & sqe::FIXED_FILE != 0 { Target::Fixed(sqe.fd as u32) } else { Target::Fd(sqe.fd) };
            }
            check(sqe, def, &cx, &mut guard.drain).and_then(|()| {
                req.notification = net::notification(opcode, sqe);
                (def.prep)(sqe, &cx, &mut req.op)
            })
        }
        None => Err(Errno::EINVAL),
    };
    if let Err(errno) = prepared {
        req.op = Op::Malformed(errno);
    }
}

/// What is common to all opcodes.
#[inline]
fn check(sqe: &Sqe, def: &OpDef, cx: &PrepCx, drain: &mut DrainQueue) -> Result<(), Errno> {
    if sqe.flags & !SQE_FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    if !def.supported {
        return Err(Errno::EINVAL);
    }
    if sqe.flags & sqe::BUFFER_SELECT != 0 && !def.buffer_select {
        return Err(Errno::EOPNOTSUPP);
    }
    if sqe.flags & sqe::CQE_SKIP_SUCCESS != 0 {
        drain.bar();
    }
    if sqe.flags & sqe::IO_DRAIN != 0 {
        if drain.is_barred() {
            return Err(Errno::EOPNOTSUPP);
        }
        drain.begin(cx.is_after_link);
    }
    if !def.ioprio && sqe.ioprio != 0 {
        return Err(Errno::EINVAL);
    }
    if cx.setup & setup::IOPOLL != 0 && !def.iopoll {
        return Err(Errno::EINVAL);
    }
    // No personality is ever registered: IORING_REGISTER_PERSONALITY answers EINVAL.
    if sqe.personality != 0 {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// A request is over: its CQE, and what follows in its chain.
#[inline(never)]
pub(crate) fn complete(guard: &mut UringGuard, mut req: Request, outcome: Outcome) {
    end(guard, &mut req, outcome);
}

/// As [`complete`], where the request is.
#[inline]
fn end(guard: &mut UringGuard, req: &mut Request, mut outcome: Outcome) {
    // What the program wants done elsewhere it may want to be told of as such, whoever did it (EVENTFD_ASYNC).
    if guard.res.lock_owner == LockOwner::Worker || (req.has(sqe::ASYNC) && req.prep_error().is_none()) {
        guard.res.cq.note_async();
    }
    if outcome.res == -Errno::ECANCELED.into_raw() {
        // What was moved before the end is told, not that it ended.
        outcome.res = req.op.bytes_done().map_or(outcome.res, |n| n as i32);
    }
    if let Some(selected) = req.op.selected_buffer() {
        outcome.flags |= guard.res.buf_groups.put(selected);
    }
    if let Some(notification) = req.notification.take() {
        post_with(guard, req, outcome, notification);
    } else {
        guard.post_outcome(req, outcome);
    }
    finish(guard, req, outcome.is_failure);
}

/// A CQE and the notification behind it: the data was copied, so nothing is left to wait for.
#[cold]
fn post_with(guard: &mut UringGuard, req: &Request, outcome: Outcome, notification: Notification) {
    let more = if notification.is_announced { cqe::MORE } else { 0 };
    guard.post_outcome(req, outcome.with_flags(more));
    guard.res.post(Cqe { user_data: req.user_data, res: notification.res, flags: cqe::NOTIF });
}

/// What a completion brings on: the link timer ends, the chain goes on or breaks, drained chains get their turn.
#[inline]
fn finish(guard: &mut UringGuard, req: &mut Request, is_failure: bool) {
    guard.in_flight -= 1;
    if let Some(timer) = req.link_timer.take() {
        act::end_link_timer(guard, timer);
    }
    if req.next.is_some() {
        dispatch::go_on(guard, req, is_failure);
    }
    if !guard.drain.is_empty() {
        dispatch::run_drained(guard);
    }
    if guard.res.timers.counts_completions() {
        act::fire_counted(guard);
    }
}
