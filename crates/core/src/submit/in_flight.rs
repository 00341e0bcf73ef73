//! Ops that run without the ring's lock: taken out of their parked requests, and completed
//! afterwards.

use super::attempt::Depth;
use super::complete::complete;
use super::dispatch::run_ready;
use super::facts;
use crate::ops::{Op, futex::FutexOp};
use crate::request::{Outcome, ReqId, Request};
use crate::rsrc::files::FileNode;
use crate::state::UringGuard;
use crate::write::{self, history::Latency};
use alloc::sync::Arc;
use uringlet_abi::Opcode;
use uringlet_sys::{Errno, io};

/// An op that runs without the ring's lock. Its ring may end meanwhile, its file does not.
#[derive(Debug)]
pub(crate) struct TakenOp {
    pub(crate) op: Op,
    pub(crate) fd: i32,
    /// The engine's file behind the number.
    _node: Option<Arc<FileNode>>,
}

impl TakenOp {
    /// Gives up the file: the request has it still.
    pub(crate) fn into_op(self) -> Op {
        self.op
    }
}

/// Takes the op out of a parked request, to be executed by the thread `executor` of the engine; 0
/// for one of the program. `None`: the request is gone.
pub(crate) fn take_op(guard: &mut UringGuard, id: ReqId, executor: u32) -> Option<TakenOp> {
    let parked = guard.parked(id)?;
    parked.executor = executor;
    let node = parked.req.node().cloned();
    let fd = parked.req.open_number().unwrap_or(-1);
    let op = match &parked.req.op {
        // A cancel needs the sleeper, so the request keeps a reference.
        Op::Futex(FutexOp::Wait(wait)) => Op::Futex(FutexOp::Wait(Arc::clone(wait))),
        _ => core::mem::replace(&mut parked.req.op, Op::InFlight),
    };
    Some(TakenOp { op, fd, _node: node })
}

/// Whether the op of a cancelled request has come back without having done anything.
fn was_interrupted(req: &Request, op: &Op, fd: i32, outcome: Outcome) -> bool {
    const SOCK_STREAM: i32 = 1;
    // A receive of no bytes from a TCP socket answers an interrupt with 0.
    let receives = matches!(req.opcode, Opcode::Recv | Opcode::Recvmsg);
    let is_empty = || outcome.res == 0 && receives && op.max_transfer() == Some(0) && io::socket_option(fd, io::SO_TYPE) == Ok(SOCK_STREAM);
    outcome.res == -Errno::EINTR.into_raw() || is_empty()
}

/// A parked request's op was run: completes it. `false` if the request is gone.
pub(crate) fn complete_op(guard: &mut UringGuard, id: ReqId, taken: TakenOp, outcome: Outcome, latency: Option<Latency>) -> bool {
    // The request itself is the last to give up its file.
    let fd = taken.fd;
    let mut op = taken.into_op();
    let mut outcome = op.finish(&mut guard.res, outcome);
    let Some(mut parked) = guard.unpark(id) else { return false };
    if parked.req.is_cancelled && was_interrupted(&parked.req, &op, fd, outcome) && facts::is_polled(&parked.req, fd) {
        // In the kernel it would have been armed.
        outcome.res = -Errno::ECANCELED.into_raw();
        outcome.is_failure = true;
    }
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
