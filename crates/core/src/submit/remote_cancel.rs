//! Requests of a ring's maker that a forked child cancels: the child asks, a thread of the maker's
//! answers. All under the lock between processes.
//!
//! ```text
//!   child                                  the maker's watcher, or a thread of it in enter()
//!   writes the question, wakes the maker
//!   (lock released) sleeps                 cancels what matches
//!                                          writes the answer, wakes the child
//!   takes the answer                       (lock released) the CQEs are there
//! ```
//!
//! The maker answers only while one of its threads looks after the ring, and says so in the same
//! memory. It cannot before it has used the ring since the child does; a child then waits a while.
//!
//! Differs: requests of other children are not found, nor a child's by its parent; nor one of the
//! maker's that a worker executes while no thread waits and nothing is armed.

use super::cancel::{self, check_file};
use super::left_timeouts;
use crate::ops::cancel::CancelOp;
use crate::state::UringGuard;
use uringlet_abi::Opcode;
use uringlet_sys::Errno;
use uringlet_sys::process::{is_alive, monotonic_ns, pid};
use uringlet_sys::remote_cancel::{CancelQuestion, Served};

/// How long a sleep for the answer lasts before the maker is looked for, ns.
const LOOK_NS: u64 = 20_000_000;
/// How long to wait for a maker that has said that it would answer, ns.
const ANSWER_TIMEOUT_NS: u64 = 10_000_000_000;
/// How long to wait for one that has said nothing, ns.
const SILENT_TIMEOUT_NS: u64 = 200_000_000;
/// Stands for "no opcode".
const NO_OPCODE: u32 = u32::MAX;

/// Cancels the requests that `op` matches, of this process and of the ring's maker. Returns as
/// [`cancel::cancel`].
///
/// # Errors
/// As there; `EBADF`.
pub(crate) fn cancel_matching(guard: &mut UringGuard, op: &CancelOp) -> Result<usize, Errno> {
    check_file(guard, op)?;
    match (cancel::cancel(guard, op), guard.other_maker()) {
        (Ok(own), Some(maker)) if op.is_all() => Ok(own + ask(guard, maker, op).unwrap_or(0)),
        (Err(Errno::ENOENT), Some(maker)) => ask(guard, maker, op),
        (own, _) => own,
    }
}

/// Asks the maker to cancel what `op` matches. Returns the number of requests, as there.
///
/// # Errors
/// `ENOENT` nothing matches, or the maker does not answer; `EALREADY` the match was running and was
/// interrupted.
#[cold]
fn ask(guard: &mut UringGuard, maker: u32, op: &CancelOp) -> Result<usize, Errno> {
    let timeout_ns = match guard.res.memory.remote_cancel().served() {
        Served::Yes => ANSWER_TIMEOUT_NS,
        Served::Unknown => SILENT_TIMEOUT_NS,
        Served::No => return Err(Errno::ENOENT),
    };
    let (me, deadline) = (pid(), monotonic_ns() + timeout_ns);
    wait_while(guard, maker, deadline, |guard| {
        let asker = guard.res.memory.remote_cancel().asker();
        asker.is_some_and(|asker| asker != me && is_alive(asker))
    })?;
    guard.res.memory.remote_cancel().ask(me, question_of(op));
    guard.res.memory.biased_lock().notify().wake();
    guard.wake_maker();
    let mut answer = None;
    let waited = wait_while(guard, maker, deadline, |guard| {
        answer = guard.res.memory.remote_cancel().take_answer(me);
        answer.is_none()
    });
    if waited.is_err() {
        let remote = guard.res.memory.remote_cancel();
        remote.withdraw(me);
        if remote.served() == Served::Unknown {
            remote.set_served(false);
        }
    }
    let answer = answer.unwrap_or(-Errno::ENOENT.into_raw());
    usize::try_from(answer).map_err(|_| Errno::new(-answer))
}

/// Sleeps, with the lock released, while a condition holds.
///
/// # Errors
/// `ENOENT`: the maker is gone, or the deadline is.
fn wait_while(guard: &mut UringGuard, maker: u32, deadline: u64, mut condition: impl FnMut(&mut UringGuard) -> bool) -> Result<(), Errno> {
    while condition(guard) {
        if monotonic_ns() >= deadline || !is_alive(maker) {
            return Err(Errno::ENOENT);
        }
        let events = guard.res.memory.biased_lock().event_seq();
        // Interrupted, or woken by another event: the condition is looked at again.
        let _ = guard.unlocked(|| events.wait(deadline.min(monotonic_ns() + LOOK_NS)));
    }
    Ok(())
}

/// Answers the question of another process, if there is one, and goes on with what others left.
#[inline]
pub(crate) fn serve(guard: &mut UringGuard) {
    if guard.is_shared() && guard.other_maker().is_none() {
        answer_question(guard);
        left_timeouts::adopt(guard);
    }
}

#[cold]
fn answer_question(guard: &mut UringGuard) {
    let Some(question) = guard.res.memory.remote_cancel().question() else { return };
    let result = cancel::cancel(guard, &op_of(question));
    // The lock may have been released meanwhile, and the asker may have given up.
    if guard.res.memory.remote_cancel().question() != Some(question) {
        return;
    }
    let answer = result.map_or_else(|errno| -errno.into_raw(), |n| i32::try_from(n).unwrap_or(i32::MAX));
    guard.res.memory.remote_cancel().answer(answer);
    guard.res.memory.biased_lock().notify().wake();
}

fn question_of(op: &CancelOp) -> CancelQuestion {
    let opcode = op.opcode.map_or(NO_OPCODE, |opcode| u32::from(opcode as u8));
    CancelQuestion { flags: op.flags, fd: op.fd, opcode, user_data: op.user_data }
}

fn op_of(question: CancelQuestion) -> CancelOp {
    let opcode = u8::try_from(question.opcode).ok().and_then(Opcode::from_u8);
    CancelOp { flags: question.flags, user_data: question.user_data, fd: question.fd, opcode }
}
