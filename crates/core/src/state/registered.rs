//! Rings by registered number (`IORING_REGISTER_RING_FDS`).
//!
//! The kernel keeps sixteen a thread. Here the numbers are the process': a thread may use one that
//! another registered, which the kernel would refuse; no program can rely on that refusal.

use super::ring::Ring;
use super::ring_table::RINGS;
use core::ops::Range;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire};
use uringlet_sys::Errno;

/// Rings that can be registered in a process.
const SLOTS: usize = 1024;
/// Numbers that the kernel has.
pub(crate) const KERNEL_SLOTS: u32 = 16;

/// The index of each registered ring + 1; 0 for none.
static REGISTERED: [AtomicU32; SLOTS] = [const { AtomicU32::new(0) }; SLOTS];

/// The ring with this registered number.
#[inline]
pub(crate) fn registered_ring(index: u32) -> Result<&'static Ring, Errno> {
    let slot = REGISTERED.get(index as usize).ok_or(Errno::EINVAL)?;
    // An empty number that the kernel does not have either is a bad argument, not a bad descriptor.
    let none = if index < KERNEL_SLOTS { Errno::EBADF } else { Errno::EINVAL };
    let ring_index = slot.load(Acquire).checked_sub(1).ok_or(none)?;
    RINGS.get(ring_index).ok_or(Errno::EBADF)
}

/// Gives a ring this number, or any free one. Returns the number.
pub(crate) fn register_ring(ring: &'static Ring, number: Option<u32>) -> Result<u32, Errno> {
    let mut range: Range<usize> = number.map_or(0..SLOTS, |n| n as usize..n as usize + 1);
    let slot = range.find(|&i| REGISTERED[i].compare_exchange(0, ring.index + 1, AcqRel, Acquire).is_ok());
    slot.map(|slot| slot as u32).ok_or(Errno::EBUSY)
}

/// Frees a number. Returns the ring that it was.
pub(crate) fn unregister_ring(number: u32) -> Result<Option<&'static Ring>, Errno> {
    let slot = REGISTERED.get(number as usize).ok_or(Errno::EINVAL)?;
    let ring = slot.swap(0, AcqRel).checked_sub(1).and_then(|ring_index| RINGS.get(ring_index));
    if ring.is_none() && number >= KERNEL_SLOTS { Err(Errno::EINVAL) } else { Ok(ring) }
}

/// Whether the ring has a registered number.
pub(crate) fn is_registered(ring_index: u32) -> bool {
    REGISTERED.iter().any(|slot| slot.load(Acquire) == ring_index + 1)
}

/// The ring has ended: frees its registered numbers.
pub(crate) fn forget_ring(ring_index: u32) {
    for slot in &REGISTERED {
        let _ = slot.compare_exchange(ring_index + 1, 0, AcqRel, Acquire);
    }
}
