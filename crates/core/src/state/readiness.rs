//! The readiness of a ring's descriptor, for programs that poll it.

use super::ring::{Ring, RingState};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

/// Some polled ring may be flagged readable.
pub(crate) static ANY_READABLE: AtomicBool = AtomicBool::new(false);

impl RingState {
    /// Makes the ring's descriptor readable for its pollers.
    pub(crate) fn flag_readable(&self, ring: &Ring) {
        if ring.is_polled.load(Relaxed)
            && let Some(fd) = &self.fd
        {
            // Flagged first: a poller that wakes for nothing clears the readiness, and must not
            // spin until this thread runs again.
            ring.is_flagged.store(true, Relaxed);
            ANY_READABLE.store(true, Release);
            fd.set_readable();
            if ring.is_polled_by_ring.load(Relaxed) {
                ring.has_event_for_rings.store(true, Release);
            }
        }
    }

    /// Clears the readiness if the CQ is empty (again).
    pub(crate) fn settle_readable(&self, ring: &Ring) {
        let Some(fd) = &self.fd else { return };
        if self.res.is_drained() && ring.is_flagged.swap(false, AcqRel) {
            fd.clear_readable();
            // A CQE posted later is posted under this lock and flags the ring again. This is for
            // one that the program has not reaped.
            if self.res.cq.ready(&self.res.memory) > 0 {
                fd.set_readable();
                ring.is_flagged.store(true, Relaxed);
            }
        }
    }
}
