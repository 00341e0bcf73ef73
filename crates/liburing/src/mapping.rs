//! Mapping the memory of a ring.

use uringlet_abi::{UringParams, layout};

use crate::ring::IoUring;
use crate::{sizes, syscall};

/// Maps the two regions of a ring fd and points `ring` into them.
pub(crate) fn map(ring: &IoUring, fd: i32, params: &UringParams) -> Result<(), i32> {
    let rings_len = sizes::rings(params);
    let sqes_len = sizes::sqes(params.sq_entries, params.flags);
    let rings = syscall::map_ring(fd, rings_len, layout::OFF_SQ_RING)?;
    let sqes = syscall::map_ring(fd, sqes_len, layout::OFF_SQES).inspect_err(|_| {
        // SAFETY: mapped above, and nothing uses it yet.
        unsafe { syscall::unmap(rings, rings_len) };
    })?;
    // SAFETY: the mappings are this fd's, with the sizes that its parameters give.
    unsafe { ring.point_into(rings, sqes.cast(), params) };
    ring.sq.ring_sz.set(rings_len);
    ring.cq.ring_sz.set(rings_len);
    ring.sq.sqes_sz.set(sqes_len as u32);
    Ok(())
}

/// Unmaps the two queues, not the SQEs.
pub(crate) fn unmap_rings(ring: &IoUring) {
    // SAFETY: `map` made it; with the program's own memory the size is 0 and nothing happens.
    unsafe { syscall::unmap(ring.sq.ring_ptr.get(), ring.sq.ring_sz.get()) };
}
