//! `IORING_REGISTER_CLONE_BUFFERS`: the registered buffers of another ring.
//!
//! The source's lock is taken while this ring's is released: two rings that clone from each other
//! at once would deadlock otherwise.

use crate::rsrc::buffers::{self, BufferNode, BufferTable};
use crate::state::{LockOwner, Ring, UringGuard};
use alloc::sync::Arc;
use alloc::vec::Vec;
use uringlet_abi::register::{CLONE_DST_REPLACE, CLONE_SRC_REGISTERED, CloneBuffers};
use uringlet_sys::{Errno, UserPtr, process, user};

/// Finds the ring that a number means; the flag says whether it is a registered ring's.
type FindRing = fn(u32, bool) -> Result<&'static Ring, Errno>;

/// # Errors
/// `EINVAL` unknown flags, offsets without a number, more than there are; `EBUSY` there are buffers
/// and they are not to be replaced; `ENXIO` the source has none; `EOVERFLOW` beyond its table;
/// `EEXIST` it belongs to another thread; `EBADF`, `EOPNOTSUPP` no ring.
pub(super) fn clone(guard: &mut UringGuard, arg: UserPtr, find: FindRing) -> Result<usize, Errno> {
    let spec: CloneBuffers = user::read(arg)?;
    let replaces = spec.flags & CLONE_DST_REPLACE != 0;
    if spec.flags & !(CLONE_SRC_REGISTERED | CLONE_DST_REPLACE) != 0 {
        return Err(Errno::EINVAL);
    }
    if guard.res.buffers.is_registered && !replaces {
        return Err(Errno::EBUSY);
    }
    if spec.pad != [0; 3] {
        return Err(Errno::EINVAL);
    }
    let ring = guard.ring;
    let source = guard.unlocked(|| find(spec.src_fd, spec.flags & CLONE_SRC_REGISTERED != 0))?;
    let cloned =
        if core::ptr::eq(source, ring) { clones(&guard.res.buffers, &spec) } else { guard.unlocked(|| clones_of_other(source, &spec)) }?;
    // Another thread may have registered buffers meanwhile.
    if guard.res.buffers.is_registered && !replaces {
        return Err(Errno::EBUSY);
    }
    install(guard, &spec, cloned);
    Ok(0)
}

fn clones_of_other(source: &'static Ring, spec: &CloneBuffers) -> Result<Vec<Option<Arc<BufferNode>>>, Errno> {
    let other = source.lock(LockOwner::Worker).ok_or(Errno::EBADF)?;
    if other.issuer.is_some_and(|issuer| issuer != process::thread_key()) {
        return Err(Errno::EEXIST);
    }
    clones(&other.res.buffers, spec)
}

/// New nodes for the part of a table that is asked for: a clone has no tag.
fn clones(table: &BufferTable, spec: &CloneBuffers) -> Result<Vec<Option<Arc<BufferNode>>>, Errno> {
    if spec.nr == 0 && (spec.src_off != 0 || spec.dst_off != 0) {
        return Err(Errno::EINVAL);
    }
    if table.len() == 0 {
        return Err(Errno::ENXIO);
    }
    if spec.nr > table.len() {
        return Err(Errno::EINVAL);
    }
    let nr = if spec.nr == 0 { table.len() } else { spec.nr };
    let end = spec.src_off.checked_add(nr).filter(|&end| end <= table.len()).ok_or(Errno::EOVERFLOW)?;
    let dst_end = spec.dst_off.checked_add(nr).ok_or(Errno::EOVERFLOW)?;
    if dst_end > buffers::MAX {
        return Err(Errno::EINVAL);
    }
    Ok((spec.src_off..end).map(|index| clone_of(table, index)).collect())
}

fn clone_of(table: &BufferTable, index: u32) -> Option<Arc<BufferNode>> {
    let node = u16::try_from(index).ok().and_then(|index| table.get(index))?;
    Some(Arc::new(BufferNode { base: node.base, len: node.len, tag: 0 }))
}

/// Puts the clones into the table, which grows if it has to. What they replace is given up.
fn install(guard: &mut UringGuard, spec: &CloneBuffers, cloned: Vec<Option<Arc<BufferNode>>>) {
    let mut slots = guard.res.buffers.remove_all();
    let start = spec.dst_off as usize;
    let end = start + cloned.len();
    if slots.len() < end {
        slots.resize(end, None);
    }
    let replaced: Vec<Option<Arc<BufferNode>>> = slots.splice(start..end, cloned).collect();
    guard.res.buffers.install(slots);
    guard.res.has_nodes = true;
    for node in replaced.into_iter().flatten() {
        guard.res.release_buffer(node);
    }
}
