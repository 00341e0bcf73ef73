//! Leaving a ring: what is armed must not be left without a thread that looks after it.

use super::closing;
use super::events::{drive, poll_unless_deferred, run_requeued};
use super::watcher::{WatcherNotify, hand_over};
use crate::identity::is_diverged;
use crate::state::home_table::check_table;
use crate::state::{LockOwner, RINGS, Ring, UringGuard};
use crate::submit::identity::leave_worker;
use crate::uringlet;
use uringlet_abi::{setup, sq_flags};
use uringlet_sys::UserPtr;

/// What a thread does when it leaves a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ExitAction {
    None,
    /// The ring is closing, and waited for this thread.
    Close,
    /// The watcher takes over.
    Notify(WatcherNotify),
}

/// A thread leaves a ring. If something is armed, a driver or the watcher must look after it.
pub(crate) fn release_ring(mut guard: UringGuard) {
    let action = exit_action(&mut guard);
    perform(guard, action);
}

/// As [`release_ring`], for a worker: it does not end a closing ring.
pub(crate) fn release_ring_of_worker(guard: UringGuard) {
    if !guard.is_closing {
        release_ring(guard);
    }
}

/// As [`release_ring`], for a caller that releases the lock itself if there is nothing to do:
/// moving a guard costs more than that.
#[inline]
pub(crate) fn exit_action(guard: &mut UringGuard) -> ExitAction {
    if guard.is_closing {
        return ExitAction::Close;
    }
    uringlet::wake(guard);
    if guard.res.setup & setup::TASKRUN_FLAG != 0 {
        // The kernel sets the flag when an event comes. No event reaches the engine here, so the
        // flag is set while something is armed: the program finds out by entering.
        let may_have_work = guard.needs_watch() || !guard.res.deferred.is_empty();
        guard.res.set_sq_flag(sq_flags::TASKRUN, may_have_work);
    }
    if is_diverged() {
        leave_worker(guard);
    }
    if guard.needs_watch() { leave_to_watcher(guard) } else { ExitAction::None }
}

fn leave_to_watcher(guard: &mut UringGuard) -> ExitAction {
    guard.watched.seq = guard.watched.seq.wrapping_add(1);
    if guard.waiters.has_driver { ExitAction::None } else { ExitAction::Notify(hand_over(guard)) }
}

/// A thread leaves a ring that others poll, and that has become readable: what they wait for is
/// complete when it returns to the program.
#[cold]
pub(super) fn poll_other_rings(ring: &'static Ring) {
    // Requests of a ring whose descriptor table this thread has not would act on other files.
    for other in RINGS.all().filter(|other| other.index != ring.index && check_table(other).is_ok()) {
        if let Some(mut guard) = other.lock(LockOwner::Worker) {
            poll_unless_deferred(&mut guard);
            release_ring(guard);
        }
    }
}

/// Completes what the ring's files have ready now, for a thread that is not inside it. A
/// `DEFER_TASKRUN` ring looks when its program enters, as in the kernel.
#[cold]
pub(crate) fn look_at_files(ring: &'static Ring) {
    if check_table(ring).is_err() {
        return;
    }
    if let Some(mut guard) = ring.lock(LockOwner::Worker).filter(|guard| guard.res.setup & setup::DEFER_TASKRUN == 0) {
        // Also beside a driver: what its epoll_wait reports is looked up when it wakes.
        let _ = drive(&mut guard, 0, UserPtr::NULL);
        run_requeued(&mut guard);
        release_ring(guard);
    }
}

/// Performs an exit action, and releases the lock.
#[cold]
pub(crate) fn perform(guard: UringGuard, action: ExitAction) {
    match action {
        ExitAction::None => {}
        ExitAction::Close => closing::finish(guard),
        ExitAction::Notify(notify) => {
            drop(guard);
            notify.deliver();
        }
    }
}
