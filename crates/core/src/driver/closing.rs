//! The end of a ring: when nothing names it any more, and nobody is inside.

use super::events::poll_before_close;
use crate::request::Stage;
use crate::state::{LockOwner, RINGS, Ring, RingState, UringGuard, forget_ring, is_registered};
use crate::submit::command;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;
use uringlet_sys::fd::RingFd;
use uringlet_sys::thread;

/// The last known number of a ring is gone: ends the ring, unless a child or an unknown duplicate holds it. Then returns the
/// descriptor that reports its end.
pub(super) fn end_if_closed(ring: &'static Ring, generation: u64) -> Option<i32> {
    let mut guard = ring.lock(LockOwner::Worker).filter(|guard| guard.generation == generation)?;
    let fd = guard.fd.as_mut()?;
    fd.untrack_readiness();
    let is_orphaned = fd.is_orphaned();
    let writer = fd.writer();
    ring.is_polled.store(false, Relaxed);
    if is_orphaned || guard.is_idle_heir() {
        end_unless_registered(guard);
        return None;
    }
    Some(writer)
}

/// A registered number was given up: a ring that has no other name ends.
pub(crate) fn end_if_unnamed(ring: &'static Ring) {
    let Some(guard) = ring.lock(LockOwner::Worker) else { return };
    let is_orphaned = guard.fd.as_ref().is_none_or(RingFd::is_orphaned);
    if guard.known_fds == 0 && (is_orphaned || guard.is_idle_heir()) {
        end_unless_registered(guard);
    }
}

/// The watcher has seen that nobody has a descriptor of this ring any more: or of an earlier one in its place.
pub(super) fn orphaned(ring_index: u32) {
    if let Some(ring) = RINGS.get(ring_index) {
        end_if_unnamed(ring);
    }
}

/// Without a descriptor a ring lives on if it has a registered number; else its time is over: at once, or when the last
/// thread inside leaves.
fn end_unless_registered(mut guard: UringGuard) {
    if !is_registered(guard.ring.index) {
        // What came before this close is posted: the program may read its CQ mapping without any further call.
        poll_before_close(&mut guard);
        guard.is_closing = true;
        finish(guard);
    }
}

/// Ends a closing ring if nobody is inside.
pub(super) fn finish(mut guard: UringGuard) {
    if guard.waiters.inside > 0 || guard.baton.is_none() {
        return;
    }
    interrupt_workers(&mut guard);
    let ring = guard.ring;
    forget_ring(ring.index);
    dispose(guard.end());
    RINGS.give(ring);
}

/// What workers are doing for the ring is interrupted.
fn interrupt_workers(guard: &mut UringGuard) {
    let works: Vec<u64> =
        guard.parked.iter().filter_map(|(_, p)| if let Stage::Worker { work } = p.stage { Some(work) } else { None }).collect();
    for work in works {
        guard.io_wq.cancel(work);
    }
    for (_, parked) in guard.parked.iter() {
        if let Stage::Running { tid: tid @ 1.. } = parked.stage {
            thread::interrupt(tid);
        }
    }
}

/// Frees a ring's state. Files close, AIO in flight is waited for: with no lock held.
fn dispose(state: RingState) {
    command::cancel_all(&state);
    for (_, parked) in state.parked.iter() {
        parked.unmark(state.res.ring_index);
    }
    drop(state);
}
