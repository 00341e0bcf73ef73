//! Requests that may wait for ever, and that nothing but a sleeping thread can wait for: WAITID, FUTEX_WAIT, FUTEX_WAITV.
//!
//! Such a request sleeps with a worker of the unbounded class, but stays in the ring's table, and whoever takes it out there
//! ends it, at once:
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
//! So the worker may take nothing while it sleeps that it could not give back: WAITID sleeps without reaping, and reaps under
//! the ring's lock; who sleeps on a futex wakes another one instead. Checked by `model` (loom), with `ops/futex/sleep.rs`.

#[cfg(all(test, loom))]
mod model;

use super::punt::{self, hand_to_io_wq};
use super::{act, complete, dispatch};
use crate::apoll::Rearm;
use crate::io_wq::{Account, InterruptGuard};
use crate::ops::futex::{FutexOp, FutexWait};
use crate::ops::waitid::Waitid;
use crate::ops::{Op, OpFile};
use crate::request::{Outcome, ReqId, Request, Stage, Target};
use crate::rsrc::files::FileNode;
use crate::state::{Punted, UringGuard};
use alloc::sync::Arc;
use uringlet_abi::Opcode;
use uringlet_sys::Errno;
use uringlet_sys::fd::EPOLLIN;

/// Whether requests of this kind sleep as described here.
pub(super) fn is_wait(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::Waitid | Opcode::FutexWait | Opcode::FutexWaitv)
}

/// Issues a WAITID, or issues it again.
pub(super) fn start_waitid(guard: &mut UringGuard, mut req: Request, op: Waitid, mut file: OpFile) {
    if let Some(outcome) = op.try_wait(file.fd) {
        return complete(guard, req, outcome);
    }
    if op.is_bound_to_its_thread() {
        return complete(guard, req, Outcome::err(Errno::EINVAL));
    }
    if matches!(req.target, Target::None)
        && let Some(fd) = op.open_pidfd()
    {
        file = OpFile { fd: fd.number(), is_fixed: true };
        req.target = Target::Held(Arc::new(FileNode { fd, tag: 0 }));
    }
    // A pidfd that was ready without an answer would be so again: somebody traces the child.
    if file.fd >= 0 && op.is_pollable() && !req.poll_fired {
        dispatch::arm(guard, req, file, EPOLLIN, Rearm::Recheck);
    } else {
        hand_to_io_wq(guard, req, file);
    }
}

/// Issues a FUTEX_WAIT or a FUTEX_WAITV: when this returns there is somebody to wake.
pub(super) fn start_futex(guard: &mut UringGuard, req: Request, wait: &FutexWait, file: OpFile) {
    if let Err(errno) = wait.compare() {
        return complete(guard, req, Outcome::err(errno));
    }
    let id = hand_to_io_wq(guard, req, file);
    if guard.parked(id).is_none() {
        return;
    }
    let is_expected = guard.io_wq.has_capacity(Account::Unbound);
    let errno = match guard.unlocked(|| wait.requeue_sleeper(is_expected)) {
        Ok(true) => wait.compare().err(),
        Ok(false) => None,
        Err(errno) => Some(errno),
    };
    let stage = guard.parked(id).map(|parked| parked.stage);
    if let (Some(errno), Some(Stage::Worker { work })) = (errno, stage)
        && let Some(req) = end(guard, id, work)
    {
        complete(guard, req, Outcome::err(errno));
    }
}

/// On a worker.
pub(super) fn run(punted: &Punted, op: Op, fd: i32, interrupts: &InterruptGuard) {
    match &op {
        Op::Waitid(wait) => {
            let wait = *wait;
            wait_for_child(punted, op, wait, fd, interrupts);
        }
        Op::Futex(FutexOp::Wait(wait)) => {
            let wait = Arc::clone(wait);
            sleep_on_futexes(punted, op, &wait, interrupts);
        }
        _ => {}
    }
}

fn wait_for_child(punted: &Punted, op: Op, wait: Waitid, fd: i32, interrupts: &InterruptGuard) {
    while interrupts.run(|| wait.sleep(fd)).is_some() {
        let Some(mut guard) = punted.lock() else { return };
        if guard.parked(punted.id()).is_none() {
            return;
        }
        if let Some(outcome) = wait.try_wait(fd) {
            punt::was_run(&mut guard, punted.id(), op, outcome, None);
            return act::leave(guard);
        }
    }
}

fn sleep_on_futexes(punted: &Punted, op: Op, wait: &FutexWait, interrupts: &InterruptGuard) {
    while let Some(woken) = interrupts.run(|| wait.sleep()) {
        let guard = punted.lock().and_then(|mut guard| guard.parked(punted.id()).is_some().then_some(guard));
        match (guard, woken) {
            (Some(_), Err(Errno::EINTR)) => {}
            (Some(mut guard), woken) => {
                punt::was_run(&mut guard, punted.id(), op, woken.into(), None);
                return act::leave(guard);
            }
            (None, Ok(which)) => return wait.forward_wake(which),
            (None, Err(_)) => return,
        }
    }
    wait.decline_sleep();
}

/// Takes back a request that is with a worker, or on the way to one. No wake finds it any more.
pub(super) fn end(guard: &mut UringGuard, id: ReqId, work: u64) -> Option<Request> {
    let _ = guard.io_wq.cancel(work);
    let req = guard.unpark(id)?.req;
    if let Op::Futex(FutexOp::Wait(wait)) = &req.op {
        guard.unlocked(|| wait.wait_until_awake());
    }
    Some(req)
}
