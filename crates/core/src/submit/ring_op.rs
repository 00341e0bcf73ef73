//! Operations on the ring itself or on other requests: poll, timeouts, cancel, buffers, messages,
//! commands, sleeps.

use super::attempt::Attempt;
use super::{command, msg_ring, poll, remote_cancel, timeout, wait};
use crate::ops::{Op, OpFile, futex::FutexOp, poll::PollOp, timeout::TimeoutOp};
use crate::request::{Outcome, Request};
use crate::state::UringGuard;
use alloc::sync::Arc;
use uringlet_sys::Errno;

/// Issues such an operation.
#[inline(never)]
pub(super) fn issue(guard: &mut UringGuard, req: &mut Request, file: OpFile) -> Attempt {
    match &mut req.op {
        Op::Poll(PollOp::Add { .. }) => poll::add(guard, req, file),
        Op::Timeout(TimeoutOp::Add { when, count, .. }) => {
            let (when, count) = (*when, *count);
            timeout::add(guard, req, when, count)
        }
        // The request it guards is complete, or there is none.
        Op::Timeout(TimeoutOp::Link { .. }) => Attempt::Done(Outcome::err(Errno::ECANCELED)),
        Op::Buffers(op) => Attempt::Done(op.act(&mut guard.res)),
        Op::Poll(op) => Attempt::Done(poll::change(guard, *op).into()),
        Op::Timeout(op) => Attempt::Done(timeout::change(guard, *op).into()),
        Op::MsgRing(op) => Attempt::Done(msg_ring::send(guard, **op, file).into()),
        Op::Cancel(op) => Attempt::Done(remote_cancel::cancel_matching(guard, &*op).into()),
        Op::Waitid(op) => {
            let op = *op;
            wait::start_waitid(guard, req, op, file)
        }
        Op::Futex(FutexOp::Wait(sleep)) => {
            let sleep = Arc::clone(sleep);
            wait::start_futex(guard, req, &sleep, file)
        }
        Op::Cmd(_) => command::start(guard, req, file),
        _ => Attempt::Done(Outcome::err(Errno::EINVAL)),
    }
}
