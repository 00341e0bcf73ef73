//! Ops that run without the ring's lock: taken out of their parked requests, and completed
//! afterwards.

use super::attempt::Depth;
use super::complete::complete;
use super::dispatch::run_ready;
use crate::ops::{Op, futex::FutexOp};
use crate::request::{FileTarget, Outcome, ReqId};
use crate::state::UringGuard;
use crate::write::{self, history::Latency};
use alloc::sync::Arc;

/// Takes the op out of a parked request, and the number of its file. `None`: the request is gone.
pub(crate) fn take_op(guard: &mut UringGuard, id: ReqId) -> Option<(Op, i32)> {
    let parked = guard.parked(id)?;
    let fd = match &parked.req.target {
        FileTarget::Fd(fd) => *fd,
        FileTarget::Held(node) => node.fd.number(),
        FileTarget::None | FileTarget::Fixed(_) => -1,
    };
    if let Op::Futex(FutexOp::Wait(wait)) = &parked.req.op {
        // A cancel needs the sleeper, so the request keeps a reference.
        return Some((Op::Futex(FutexOp::Wait(Arc::clone(wait))), fd));
    }
    Some((core::mem::replace(&mut parked.req.op, Op::InFlight), fd))
}

/// A parked request's op was run: completes it. `false` if the request is gone.
pub(crate) fn complete_op(guard: &mut UringGuard, id: ReqId, mut op: Op, outcome: Outcome, latency: Option<Latency>) -> bool {
    let outcome = op.finish(&mut guard.res, outcome);
    let Some(mut parked) = guard.unpark(id) else { return false };
    if let Some(fd) = parked.req.queued_on.take() {
        guard.res.throttle.charge(outcome.res.max(0) as u64);
        if let Some(latency) = latency {
            write::after_worker(guard.res.ring_index, fd, latency);
        }
    }
    parked.req.op = op;
    complete(guard, parked.req, outcome);
    run_ready(guard, Depth::Shallow);
    true
}
