//! The end of a ring: when no number refers to it any more, and no thread is inside.

use super::events::poll_unless_deferred;
use crate::request::Stage;
use crate::state::{LockOwner, RINGS, Ring, RingState, UringGuard, forget_ring, is_registered};
use crate::submit::command;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;
use uringlet_sys::fd::RingFd;
use uringlet_sys::thread;

/// The last known number of a ring is gone: ends the ring, unless a child or an unknown duplicate
/// holds it. Then returns the descriptor that reports its end.
pub(super) fn end_if_closed(ring: &'static Ring, generation: u64) -> Option<i32> {
    let mut guard = ring.lock(LockOwner::Worker).filter(|guard| guard.generation == generation)?;
    let fd = guard.fd.as_mut()?;
    fd.untrack_readiness();
    let is_orphaned = fd.is_orphaned();
    let writer = fd.writer();
    ring.is_polled.store(false, Relaxed);
    if is_orphaned || guard.is_unused_by_child() {
        end_unless_registered(guard);
        return None;
    }
    Some(writer)
}

/// A registered number was freed: ends the ring if it has no other number.
pub(crate) fn end_if_unnamed(ring: &'static Ring) {
    let Some(guard) = ring.lock(LockOwner::Worker) else { return };
    let is_orphaned = guard.fd.as_ref().is_none_or(RingFd::is_orphaned);
    if guard.known_fds == 0 && (is_orphaned || guard.is_unused_by_child()) {
        end_unless_registered(guard);
    }
}

/// The watcher has seen that no descriptor of this ring is left, or of an earlier ring in its slot.
pub(super) fn orphaned(ring_index: u32) {
    if let Some(ring) = RINGS.get(ring_index) {
        end_if_unnamed(ring);
    }
}

/// A ring without a descriptor lives on if it has a registered number. Otherwise it ends: at once,
/// or when the last thread inside leaves.
fn end_unless_registered(mut guard: UringGuard) {
    if !is_registered(guard.ring.index) {
        // Posts what was ready before this close: the program may read its CQ mapping without a
        // further call.
        poll_unless_deferred(&mut guard);
        guard.is_closing = true;
        finish(guard);
    }
}

/// Ends a closing ring if no thread is inside.
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

/// Interrupts the workers that run requests of the ring.
fn interrupt_workers(guard: &mut UringGuard) {
    let works: Vec<u64> =
        guard.parked.iter().filter_map(|(_, p)| if let Stage::Worker { work } = p.stage { Some(work) } else { None }).collect();
    for work in works {
        guard.io_wq.cancel(None, work);
    }
    for (_, parked) in guard.parked.iter() {
        if parked.stage == Stage::Running && parked.executor != 0 {
            thread::interrupt(parked.executor);
        }
    }
}

/// Frees a ring's state: closes files and waits for AIO in flight. No lock is held.
fn dispose(state: RingState) {
    command::cancel_all(&state);
    for (_, parked) in state.parked.iter() {
        parked.unmark(state.res.ring_index);
    }
    drop(state);
}
