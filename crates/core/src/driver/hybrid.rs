//! The hybrid step of `IOSQE_ASYNC`: a request that may have to wait does not occupy a worker while
//! it waits. Its submitter tries light transfers itself, which do not come here (`route::hint`).
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
//! Arming takes a fresh look at the file's readiness, so an event between the try and the arming is
//! not missed. If the op needs nothing of the ring, the try is made without the ring's lock. The
//! request stays parked as the worker's meanwhile; a cancel in that time is found when the lock is
//! taken again.
//!
//! A receive from a stream that is known to be empty is armed at once: its try would find nothing.
//!
//! An op without a poll direction keeps the flag's plain meaning: a worker runs it, sleeping as
//! needed.

use super::events::poll_unless_deferred;
use super::leave::release_ring_of_worker;
use crate::apoll::Rearm;
use crate::io_wq::InterruptGuard;
use crate::ops::Issue;
use crate::request::Outcome;
use crate::state::Punted;
use crate::submit::{Depth, TakenOp, arm, complete, issue, run_ready, take_op};
use uringlet_sys::Errno;

/// A worker's try. Returns the op if it has to be run to the end.
pub(super) fn try_first(punted: &Punted, interrupts: &InterruptGuard) -> Option<TakenOp> {
    let mut guard = punted.lock()?;
    // The try without the lock is a first try: it would wait for poll once more.
    let is_first = !guard.parked(punted.id)?.req.poll_fired;
    let mut taken = take_op(&mut guard, punted.id, interrupts.calling_thread())?;
    drop(guard);
    let tried = if is_first { taken.op.try_unlocked(taken.fd) } else { None };
    match tried {
        Some(Issue::Blocks) => Some(taken),
        tried => {
            continue_after(punted, taken, tried);
            None
        }
    }
}

/// Continues after the try, or makes the try if it needs the ring's lock.
fn continue_after(punted: &Punted, taken: TakenOp, tried: Option<Issue>) {
    let Some(mut guard) = punted.lock() else { return };
    let Some(parked) = guard.unpark(punted.id) else { return };
    let mut req = parked.req;
    req.op = taken.into_op();
    req.hybrid_done = true;
    match tried {
        Some(Issue::Complete(outcome)) => complete(&mut guard, req, outcome),
        // Cancelled during the try, when there was nothing to interrupt.
        _ if req.is_cancelled => complete(&mut guard, req, Outcome::err(Errno::ECANCELED)),
        // The number may have been closed meanwhile: then the request holds the file otherwise.
        Some(Issue::WouldBlock(mask) | Issue::PollFirst(mask)) => match guard.resolve(&mut req) {
            Ok(file) => arm(&mut guard, req, file, mask, Rearm::Recheck),
            Err(errno) => complete(&mut guard, req, Outcome::err(errno)),
        },
        _ => {
            issue(&mut guard, req, Depth::Driving);
            run_ready(&mut guard, Depth::Shallow);
            // What was armed without a try may be ready, and the program may not enter for it.
            poll_unless_deferred(&mut guard);
        }
    }
    run_ready(&mut guard, Depth::Shallow);
    release_ring_of_worker(guard);
}
