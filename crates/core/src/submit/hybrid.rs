//! The hybrid step of `IOSQE_ASYNC`: what may wait for others does not occupy a worker while it waits. What is light is tried
//! by its submitter, and does not come here (`ops::hint`).
//!
//! ```text
//!   submitter          worker                                                     driver
//!   queues it     ->   tries without sleeping:
//!                        done                       -> CQE
//!                        would block -> arms poll:
//!                          armed                    -> free for other work    ->  ready: tried again
//!                          ready meanwhile                                    ->  ready: tried again
//!                          cannot be armed          -> back in the queue, to block
//!                        neither try nor poll will do -> blocks here
//! ```
//!
//! Arming looks at the file's readiness anew, so what becomes ready between the try and the arming is not missed. The try is
//! made without the ring's lock where the op needs nothing of the ring; the request stays parked as the worker's meanwhile, and
//! a cancel that comes then is found when the lock is taken again.
//!
//! A receive from a stream that is known to be empty is armed at once: the answer to the try is known.
//!
//! Where the hint is for something without a poll direction, it means what it always did: a worker does it, sleeping as needed.

use super::dispatch::{self, Later};
use super::{act, complete};
use crate::apoll::Rearm;
use crate::io_wq::InterruptGuard;
use crate::ops::hint::AsyncHint;
use crate::ops::{Issue, Op, OpFile, table};
use crate::request::{Outcome, Request};
use crate::state::{Punted, UringGuard};
use uringlet_sys::Errno;

/// Whether a worker tries this request first: it has a poll direction, and its file may have one.
pub(super) fn is_for(req: &Request, file: OpFile) -> bool {
    if !table::of(req.opcode).pollable || req.hybrid_done {
        return false;
    }
    if matches!(req.op, Op::Rw(_)) && file.kind().is_seekable() {
        return false;
    }
    !AsyncHint::Block.is_chosen() || !req.op.is_lockless()
}

/// What the submitter does: a try that is known to find nothing is not made.
pub(super) fn first_step(guard: &mut UringGuard, req: &Request, file: OpFile) -> Later {
    match req.op.receive_events() {
        Some(mask) if guard.res.known_empty(file.fd) => Later::Arm(mask, Rearm::TrustEdge),
        _ => Later::Punt,
    }
}

/// A worker's part.
pub(super) fn run(punted: &Punted, interrupts: &InterruptGuard) {
    let Some((mut op, fd)) = punted.take_op() else { return };
    match op.try_unlocked(fd) {
        Some(Issue::Blocks) => punted.run_to_the_end(op, fd, interrupts),
        tried => go_on(punted, op, fd, tried),
    }
}

/// What follows the try, or the try itself if it takes the ring's lock.
fn go_on(punted: &Punted, op: Op, fd: i32, tried: Option<Issue>) {
    let Some(mut guard) = punted.lock() else { return };
    let Some(parked) = guard.unpark(punted.id()) else { return };
    let mut req = parked.req;
    req.op = op;
    req.hybrid_done = true;
    let file = OpFile { fd, is_fixed: req.fd().is_none() };
    match tried {
        Some(Issue::Complete(outcome)) => complete(&mut guard, req, outcome),
        // Cancelled during the try, when there was nothing to interrupt.
        _ if req.is_cancelled => complete(&mut guard, req, Outcome::err(Errno::ECANCELED)),
        Some(Issue::WouldBlock(mask) | Issue::PollFirst(mask)) => dispatch::arm(&mut guard, req, file, mask, Rearm::Recheck),
        _ => dispatch::issue(&mut guard, req, false),
    }
    leave(guard);
}

fn leave(mut guard: UringGuard) {
    dispatch::run_ready(&mut guard, true);
    act::leave(guard);
}
