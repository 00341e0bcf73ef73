//! The worker's part of WAITID, FUTEX_WAIT and FUTEX_WAITV: `submit::wait` has the protocol.

#[cfg(all(test, loom))]
mod model;

use super::leave::release_ring_of_worker;
use crate::io_wq::InterruptGuard;
use crate::ops::Op;
use crate::ops::futex::{FutexOp, FutexWait};
use crate::ops::waitid::Waitid;
use crate::state::Punted;
use crate::submit::{TakenOp, complete_op};
use alloc::sync::Arc;
use uringlet_sys::Errno;

/// Sleeps for a request and completes it.
pub(super) fn run(punted: &Punted, taken: TakenOp, interrupts: &InterruptGuard) {
    match &taken.op {
        Op::Waitid(wait) => {
            let wait = *wait;
            wait_for_child(punted, taken, wait, interrupts);
        }
        Op::Futex(FutexOp::Wait(wait)) => {
            let wait = Arc::clone(wait);
            sleep_on_futexes(punted, taken, &wait, interrupts);
        }
        _ => {}
    }
}

fn wait_for_child(punted: &Punted, taken: TakenOp, wait: Waitid, interrupts: &InterruptGuard) {
    let fd = taken.fd;
    while interrupts.run(|| wait.sleep(fd)).is_some() {
        let Some(mut guard) = punted.lock() else { return };
        if guard.parked(punted.id).is_none() {
            return;
        }
        if let Some(outcome) = wait.try_wait(fd) {
            complete_op(&mut guard, punted.id, taken, outcome, None);
            return release_ring_of_worker(guard);
        }
    }
}

fn sleep_on_futexes(punted: &Punted, taken: TakenOp, wait: &FutexWait, interrupts: &InterruptGuard) {
    let Some(woken) = interrupts.run(|| wait.sleep()) else { return wait.decline_sleep() };
    let guard = punted.lock().and_then(|mut guard| guard.parked(punted.id).is_some().then_some(guard));
    match (guard, woken) {
        (Some(mut guard), woken) => {
            complete_op(&mut guard, punted.id, taken, or_spurious(woken).into(), None);
            release_ring_of_worker(guard);
        }
        (None, Ok(which)) => wait.forward_wake(which),
        (None, Err(_)) => {}
    }
}

/// The result of a request whose sleeper woke up.
fn or_spurious(woken: Result<usize, Errno>) -> Result<usize, Errno> {
    const SPURIOUS: usize = 0;
    if woken == Err(Errno::EINTR) { Ok(SPURIOUS) } else { woken }
}
