//! Whether a thread has the descriptor table of the rings: `engine::files` says what follows.

use super::ring::Ring;
use super::ring_table::RINGS;
use crate::identity;
use crate::ring_resources::LockOwner;
use uringlet_sys::Errno;
use uringlet_sys::fd::RingFd;

/// Whether the calling thread has another descriptor table than the rings.
pub(crate) fn has_other_table() -> bool {
    identity::has_split_files() && RINGS.all().find_map(is_in_table) == Some(false)
}

/// `EPERM` if the calling thread has another descriptor table than this ring. One relaxed load in
/// most processes.
#[inline]
pub(crate) fn check_table(ring: &'static Ring) -> Result<(), Errno> {
    if identity::has_split_files() && is_in_table(ring) == Some(false) { Err(Errno::EPERM) } else { Ok(()) }
}

#[cold]
fn is_in_table(ring: &'static Ring) -> Option<bool> {
    ring.lock(LockOwner::Worker)?.fd.as_ref().map(RingFd::is_in_table)
}
