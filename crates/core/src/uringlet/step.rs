//! One step of the holder of the baton: an item is taken, run without the lock and completed.
//! Generic over what holds the queue: a ring, or a model of one.

use super::run_queue::{Baton, HandoffToken, RunQueue, WakeTarget};
use super::workers::WorkerRole;
use core::fmt::Debug;
use uringlet_sys::Errno;

/// What holds a run queue.
pub(crate) trait Host: Debug {
    /// The host, locked.
    type Guard;
    /// Identifies a queued request.
    type Id: Copy + Debug;
    /// An op, taken out of its request.
    type Op: Debug;
    /// What running an op returns.
    type Outcome;

    fn queue(guard: &mut Self::Guard) -> &mut RunQueue<Self::Id>;

    fn now_ticks(guard: &Self::Guard) -> u64;

    /// Tells the spinning worker that something is queued.
    fn notify_spinner(guard: &Self::Guard);

    /// Starts a worker.
    ///
    /// # Errors
    /// No worker exists, and none could be started.
    fn start(guard: &mut Self::Guard, role: WorkerRole) -> Result<(), Errno>;

    /// The file that a queued request writes to, if any. `None`: the request was cancelled.
    fn file_of(guard: &mut Self::Guard, id: Self::Id) -> Option<Option<i32>>;

    /// Takes the op of a queued request, which the thread `tid` runs (0: a thread of the program).
    fn take_op(guard: &mut Self::Guard, id: Self::Id, tid: u32) -> Option<Self::Op>;

    /// Runs an op without the lock.
    fn run_unlocked(guard: &mut Self::Guard, op: &mut Self::Op) -> Self::Outcome;

    /// Completes a request. `written`: its file and the ticks it took, unless the baton was stolen
    /// meanwhile.
    fn complete(guard: &mut Self::Guard, id: Self::Id, op: Self::Op, outcome: Self::Outcome, written: Option<(i32, u64)>);

    /// Notes that a write to this file blocked.
    fn note_blocked(guard: &mut Self::Guard, file: i32);
}

/// If something is queued that no thread will look at, wakes or starts one. A thread does this
/// before it releases the lock for good, or goes to sleep.
#[inline]
pub(crate) fn wake<H: Host>(guard: &mut H::Guard) {
    if !H::queue(guard).is_empty() {
        wake_target::<H>(guard);
    }
}

#[cold]
fn wake_target<H: Host>(guard: &mut H::Guard) {
    let now = H::now_ticks(guard);
    match H::queue(guard).wake_target(now) {
        WakeTarget::None => {}
        WakeTarget::Spinner => H::notify_spinner(guard),
        WakeTarget::Worker if H::start(guard, WorkerRole::Runner).is_err() => {
            cancel_start::<H>(guard);
            // This thread does the worker's part, however long that takes.
            while run_queued::<H>(guard) {}
        }
        WakeTarget::Worker => {}
        WakeTarget::Monitor => {
            if H::start(guard, WorkerRole::Monitor).is_err() {
                // The next thread that wakes watches the holder.
                cancel_start::<H>(guard);
            }
        }
    }
}

/// No worker exists, for either role.
fn cancel_start<H: Host>(guard: &mut H::Guard) {
    H::queue(guard).worker_started();
    H::queue(guard).end_monitor();
}

/// An item that the holder of the baton runs.
#[derive(Debug)]
pub(super) struct IssueStep<H: Host> {
    id: H::Id,
    pub(super) op: H::Op,
    file: Option<i32>,
    token: HandoffToken,
    start_ticks: u64,
}

impl<H: Host> IssueStep<H> {
    /// Takes the next item and offers the baton to others. `Err`: nothing is queued.
    pub(super) fn begin(guard: &mut H::Guard, mut baton: Baton, tid: u32) -> Result<Self, Baton> {
        while let Some(id) = H::queue(guard).pop(&mut baton) {
            // Cancelled requests are still queued.
            let Some(file) = H::file_of(guard, id) else { continue };
            if let Some(blocked) = file.filter(|&file| H::queue(guard).is_blocked(file)) {
                H::queue(guard).defer(blocked, id);
                continue;
            }
            let Some(op) = H::take_op(guard, id, tid) else { continue };
            let start_ticks = H::now_ticks(guard);
            let token = H::queue(guard).offer(baton, id, start_ticks);
            wake::<H>(guard);
            return Ok(Self { id, op, file, token, start_ticks });
        }
        Err(baton)
    }

    /// Completes the item. Returns the baton, unless it was stolen.
    pub(super) fn end(self, guard: &mut H::Guard, outcome: H::Outcome) -> Option<Baton> {
        let baton = H::queue(guard).reclaim(self.token);
        if baton.is_none() {
            self.file.into_iter().for_each(|file| H::queue(guard).unblock(file));
        }
        // The thief has noted that the file blocks.
        let written = match (self.file, &baton) {
            (Some(file), Some(_)) => Some((file, H::now_ticks(guard).wrapping_sub(self.start_ticks))),
            _ => None,
        };
        H::complete(guard, self.id, self.op, outcome, written);
        baton
    }
}

/// Runs what is queued on the caller's thread: it has to wait for all that is in flight anyway.
/// `false`: nothing is queued, or another thread holds the baton.
pub(crate) fn run_queued<H: Host>(guard: &mut H::Guard) -> bool {
    if H::queue(guard).is_empty() {
        return false;
    }
    let Some(mut baton) = H::queue(guard).take_baton() else { return false };
    // Not what others queue meanwhile: the caller need not wait for that.
    for nth in 0..H::queue(guard).len() {
        let mut step = match IssueStep::<H>::begin(guard, baton, 0) {
            Ok(step) => step,
            Err(left) => {
                let _ = H::queue(guard).release(left);
                return nth > 0;
            }
        };
        let outcome = H::run_unlocked(guard, &mut step.op);
        match step.end(guard, outcome) {
            Some(back) => baton = back,
            None => return true,
        }
    }
    let _ = H::queue(guard).release(baton);
    true
}
