//! The readiness of a ring's descriptor, for programs that poll it.

use super::ring::{Ring, RingState};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

/// Some polled ring may be flagged readable.
pub(crate) static ANY_READABLE: AtomicBool = AtomicBool::new(false);

impl RingState {
    /// Pollers of the ring's descriptor see it readable.
    pub(crate) fn flag_readable(&self, ring: &Ring) {
        if ring.is_polled.load(Relaxed)
            && let Some(fd) = &self.fd
        {
            // Noted first: the poller that the byte wakes settles it if it was for nothing, and must not spin until we are
            // scheduled again.
            ring.is_flagged.store(true, Relaxed);
            ANY_READABLE.store(true, Release);
            fd.set_readable();
        }
    }

    /// Takes the readiness back if the CQ is empty (again).
    pub(crate) fn settle_readable(&self, ring: &Ring) {
        let Some(fd) = &self.fd else { return };
        if self.res.is_drained() && ring.is_flagged.swap(false, AcqRel) {
            fd.clear_readable();
            // A CQE posted since is posted under this lock, and flags anew. One the program has not taken is still there.
            if self.res.cq.ready(&self.res.memory) > 0 {
                fd.set_readable();
                ring.is_flagged.store(true, Relaxed);
            }
        }
    }
}
