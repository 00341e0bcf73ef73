//! Requests that may wait for ever, and only in a sleeping thread: WAITID, FUTEX_WAIT, FUTEX_WAITV.
//!
//! Such a request sleeps on a worker of the unbounded class but stays in the ring's table. The
//! thread that takes it out of there completes it:
//!
//! ```text
//!   worker                                       cancel, link timeout, close
//!   takes the op, sleeps                         ring lock
//!   wakes                                          tells io-wq: the worker is interrupted, or never begins
//!   ring lock                                      takes the request out, completes it: ECANCELED
//!     the request is gone: what it woke for is given back
//!     it is there: completes it
//! ```
//!
//! So a sleeping worker may take nothing that it could not give back: WAITID sleeps without
//! reaping, and reaps under the ring's lock; a cancelled FUTEX_WAIT that was woken wakes another
//! waiter instead. The worker's part is `driver::sleeper`, checked by its `model` (loom) together
//! with `ops/futex/sleep.rs`.

use super::attempt::{Attempt, Depth, Next};
use super::complete::complete;
use super::facts;
use super::punt::hand_to_io_wq;
use crate::apoll::Rearm;
use crate::identity::of_thread;
use crate::io_wq::Account;
use crate::ops::futex::{FutexOp, FutexWait};
use crate::ops::waitid::Waitid;
use crate::ops::{Op, OpFile};
use crate::request::{FileTarget, Outcome, ReqId, Request, Stage};
use crate::rsrc::files::FileNode;
use crate::state::UringGuard;
use alloc::sync::Arc;
use uringlet_sys::Errno;
use uringlet_sys::fd::EPOLLIN;

/// Issues a WAITID, also again after its poll fired.
pub(super) fn start_waitid(guard: &mut UringGuard, req: &mut Request, op: Waitid, mut file: OpFile) -> Attempt {
    if let Some(outcome) = op.try_wait(file.fd) {
        return Attempt::Done(outcome);
    }
    if op.is_bound_to_its_thread() {
        return Attempt::Done(Outcome::err(Errno::EINVAL));
    }
    if matches!(req.target, FileTarget::None)
        && let Some(fd) = op.open_pidfd()
    {
        file = OpFile { fd: fd.number(), is_fixed: true };
        req.target = FileTarget::Held(Arc::new(FileNode { fd, tag: 0 }));
    }
    // A pidfd that was ready without a result stays ready: a tracer has the child. So it is polled
    // once only.
    if file.fd >= 0 && op.is_pollable() && !req.poll_fired {
        return Attempt::Continue(file, Next::Arm(EPOLLIN, Rearm::Recheck));
    }
    let route = facts::blocked_route(guard, req, file, Depth::Driving);
    hand_to_io_wq(guard, req.take(), file, route);
    Attempt::Parked
}

/// Issues a FUTEX_WAIT or a FUTEX_WAITV: when this returns, a wake finds the sleeper.
pub(super) fn start_futex(guard: &mut UringGuard, req: &mut Request, wait: &FutexWait, file: OpFile) -> Attempt {
    if let Err(errno) = wait.compare() {
        return Attempt::Done(Outcome::err(errno));
    }
    let route = facts::blocked_route(guard, req, file, Depth::Driving);
    let submitter = req.thread;
    let id = hand_to_io_wq(guard, req.take(), file, route);
    if guard.parked(id).is_none() {
        return Attempt::Parked;
    }
    let identity = of_thread(submitter);
    let is_expected = guard.io_wq.has_capacity(identity, Account::Unbound);
    let errno = match guard.unlocked(|| wait.requeue_sleeper(is_expected)) {
        Ok(true) => wait.compare().err(),
        Ok(false) => None,
        Err(errno) => Some(errno),
    };
    let stage = guard.parked(id).map(|parked| parked.stage);
    if let (Some(errno), Some(Stage::Worker { work })) = (errno, stage)
        && let Some(req) = withdraw(guard, id, work)
    {
        complete(guard, req, Outcome::err(errno));
    }
    Attempt::Parked
}

/// Takes back a request that is on a worker, or queued for one. No wake finds it any more.
pub(super) fn withdraw(guard: &mut UringGuard, id: ReqId, work: u64) -> Option<Request> {
    let own = guard.res.lock_owner.identity();
    let _ = guard.io_wq.cancel(own, work);
    let req = guard.unpark(id)?.req;
    if let Op::Futex(FutexOp::Wait(wait)) = &req.op {
        guard.unlocked(|| wait.wait_until_awake());
    }
    Some(req)
}
