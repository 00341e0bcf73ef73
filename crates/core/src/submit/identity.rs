//! The identity with which a request is issued: `docs/decisions/0021`.
//!
//! An op that depends on the identity of its thread (`OpDef::acts_as_submitter`) is issued by its
//! submitter, or by a worker that has its submitter's identity. Any other thread that comes to it,
//! such as the watcher, hands it to such a worker.

use crate::identity::{self, Identity};
use crate::io_wq::{InterruptGuard, Work};
use crate::request::{Request, Submitter};
use crate::ring_resources::LockOwner;
use crate::state::UringGuard;

/// The identity that the worker of a request has.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorkerIdentity {
    pub(super) identity: Identity,
    /// It is the calling thread's, too, which may start such a worker.
    pub(super) is_own: bool,
}

/// Whether this thread must leave a request to a thread of another identity.
#[inline]
pub(super) fn must_not_issue(guard: &mut UringGuard, submitter: Submitter) -> bool {
    let may_differ = !guard.res.lock_owner.is_submitter() || identity::is_diverged() || submitter.captured.is_some();
    may_differ && is_for_other_identity(guard, submitter)
}

#[cold]
fn is_for_other_identity(guard: &mut UringGuard, submitter: Submitter) -> bool {
    if !submitter.matters() {
        return false;
    }
    match guard.res.lock_owner {
        // The watcher starts workers and does nothing else with its identity: it may be the one
        // that runs while the program changes.
        LockOwner::Watcher(_) if submitter.acts_as_submitter() => true,
        LockOwner::Worker => true,
        LockOwner::Watcher(identity) => identity != Some(submitter.identity()),
        LockOwner::WorkerOf(identity) => identity != submitter.identity(),
        LockOwner::Submitter => {
            check_this_thread(guard);
            identity::of_this_thread() != submitter.identity()
        }
    }
}

/// The identity of the worker for a request. An op that depends on no identity goes to this
/// thread's, which may start a worker.
pub(super) fn of_worker(guard: &mut UringGuard, submitter: Submitter) -> WorkerIdentity {
    if submitter.matters() && guard.res.lock_owner.is_submitter() {
        check_this_thread(guard);
    }
    let own = guard.res.lock_owner.identity();
    let identity = own.filter(|_| !submitter.matters()).unwrap_or_else(|| submitter.identity());
    WorkerIdentity { identity, is_own: own == Some(identity) }
}

/// The chain behind a request with `IOSQE_ASYNC` acts with the identity that its submitter has when
/// the request is issued. (In the kernel the whole chain is prepared for io-wq with its head.)
#[inline]
pub(super) fn capture_rest(guard: &UringGuard, req: &mut Request) {
    if let Some(rest) = req.next.as_deref_mut() {
        capture(guard, rest);
    }
}

/// A chain acts with the identity that its submitter has now.
#[cold]
pub(super) fn capture(guard: &UringGuard, head: &mut Request) {
    let mut next = Some(head);
    while let Some(req) = next {
        let submitter = req.submitter();
        if submitter.matters() && submitter.captured.is_none() {
            req.rare_mut().captured = Some(guard.io_wq.capture(submitter.identity()));
            identity::note_captured();
        }
        next = req.next.as_deref_mut();
    }
}

/// The calling thread may have another identity than the engine knows of.
fn check_this_thread(guard: &mut UringGuard) {
    if identity::check_this_thread() {
        end_old_workers(guard);
    }
}

/// Ends the workers of identities that have ended, as soon as they have done what was queued for
/// them. What waits for others may lack one.
pub(crate) fn end_old_workers(guard: &mut UringGuard) {
    guard.io_wq.end_old();
    if guard.io_wq.lacks_worker() {
        note_missing_worker(guard);
    }
}

/// A request was queued for a worker that this thread may not start: a waiting thread may, or the
/// watcher.
pub(super) fn note_missing_worker(guard: &mut UringGuard) {
    guard.lacks_worker = true;
    if guard.waiters.sleeping > 0 {
        guard.res.cq.note_must_wake();
    }
}

/// Starts the workers that requests wait for, if they have this thread's identity.
#[cold]
pub(crate) fn start_missing_workers(guard: &mut UringGuard) {
    let Some(identity) = guard.res.lock_owner.identity() else { return };
    let io_wq = guard.io_wq.clone();
    let unrunnable = io_wq.start_missing(identity).err().unwrap_or_default();
    guard.lacks_worker = io_wq.lacks_worker();
    // As in `punt`: no worker could be started.
    for punted in unrunnable {
        guard.unlocked(|| punted.run(&InterruptGuard::new()));
    }
}

/// A thread leaves the ring: what it leaves behind may need its identity.
#[cold]
pub(crate) fn leave_worker(guard: &UringGuard) {
    if guard.leaves_dependent && guard.in_flight > 0 && guard.res.lock_owner.is_submitter() {
        guard.io_wq.keep_worker(identity::of_this_thread());
    }
}
