//! The last events, for a reader in another process.
//!
//! Each event has a ticket, and the ticket selects a slot of the ring. Several writers at once, no
//! lock; the reader never writes:
//!
//! ```text
//!   writer of ticket t                               reader
//!   slot.seq: even and older -> 2t+1, else give up   a = slot.seq
//!   write the fields                                 read the fields
//!   slot.seq = 2t+2 (release)                        b = slot.seq
//!                                                    a == b, even, not 0: fields of event a/2 - 1
//! ```
//!
//! *Torn*: fields written while they are read. The writer stores its odd number before its first
//! field (release fence), the reader loads `b` after its last (acquire fence): a reader that has
//! seen a new field sees another number. *Lapped*: a writer is delayed while the ring wraps. The
//! next writer of the slot finds an odd number and drops its event; a late writer finds a newer
//! number and drops its event, too. Dropped events count, but are not shown.
//!
//! The reader in another process has no fences: it reads all slots three times by system calls, and
//! takes the numbers from the first and third, the fields from the second reading. Checked by
//! `model`.

#[cfg(all(test, loom))]
mod model;

use crate::sync::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Number of events kept.
#[cfg(not(loom))]
pub(super) const EVENTS_KEPT: usize = 256;
/// Fields of an event: time (`CLOCK_MONOTONIC`, ns), kind, ring, offset, bytes wanted, bytes got.
const FIELDS: usize = 6;
/// Bytes from one slot to the next.
#[cfg(not(loom))]
pub(super) const STRIDE: usize = size_of::<EventSlot>();

/// Names of the kinds, each with a NUL.
#[cfg(not(loom))]
pub(super) const KINDS: &str = "io_uring_short_write\0";
/// Index of the first of them.
#[cfg(not(loom))]
pub(super) const SHORT_WRITE: u64 = 0;

#[derive(Debug)]
#[repr(C)]
struct EventSlot {
    seq: AtomicU64,
    fields: [AtomicU64; FIELDS],
}

/// See the module.
#[derive(Debug)]
#[repr(C)]
pub(super) struct EventRing<const N: usize> {
    total: AtomicU64,
    entries: [EventSlot; N],
}

#[cfg(not(loom))]
impl<const N: usize> EventRing<N> {
    pub(super) const TOTAL_AT: usize = core::mem::offset_of!(Self, total);
    pub(super) const ENTRIES_AT: usize = core::mem::offset_of!(Self, entries);

    pub(super) const fn new() -> Self {
        Self {
            total: AtomicU64::new(0),
            entries: [const { EventSlot { seq: AtomicU64::new(0), fields: [const { AtomicU64::new(0) }; FIELDS] } }; N],
        }
    }
}

impl<const N: usize> EventRing<N> {
    /// Records an event, unless its slot is in use.
    pub(super) fn post(&self, fields: [u64; FIELDS]) {
        let ticket = self.total.fetch_add(1, Relaxed);
        let entry = &self.entries[(ticket % N as u64) as usize];
        let seen = entry.seq.load(Relaxed);
        let is_free = seen.is_multiple_of(2) && seen <= 2 * ticket;
        // Acquire: after the fields of the slot's previous writer.
        if !is_free || entry.seq.compare_exchange(seen, 2 * ticket + 1, Acquire, Relaxed).is_err() {
            return;
        }
        release_fence();
        for (word, field) in entry.fields.iter().zip(fields) {
            word.store(field, Relaxed);
        }
        entry.seq.store(2 * ticket + 2, Release);
    }

    /// A slot's ticket and fields, if they are whole.
    #[cfg(test)]
    fn read(&self, entry: usize) -> Option<(u64, [u64; FIELDS])> {
        let entry = &self.entries[entry];
        let before = entry.seq.load(Acquire);
        let fields = core::array::from_fn(|n| entry.fields[n].load(Relaxed));
        acquire_fence();
        let after = entry.seq.load(Relaxed);
        (before == after && before != 0 && before.is_multiple_of(2)).then(|| (before / 2 - 1, fields))
    }
}

fn release_fence() {
    #[cfg(not(loom))]
    core::sync::atomic::fence(Release);
    #[cfg(loom)]
    loom::sync::atomic::fence(Release);
}

#[cfg(test)]
fn acquire_fence() {
    #[cfg(not(loom))]
    core::sync::atomic::fence(Acquire);
    #[cfg(loom)]
    loom::sync::atomic::fence(Acquire);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_last_events_are_kept() {
        let ring = EventRing::<4>::new();
        assert_eq!(ring.read(0), None);
        for n in 0..6 {
            ring.post([n; FIELDS]);
        }
        let kept = [0, 1, 2, 3].map(|entry| ring.read(entry).map(|(ticket, fields)| (ticket, fields[5])));
        assert_eq!(kept, [Some((4, 4)), Some((5, 5)), Some((2, 2)), Some((3, 3))]);
    }

    #[test]
    fn a_slot_in_use_is_not_overwritten() {
        let ring = EventRing::<1>::new();
        ring.post([1; FIELDS]);
        ring.entries[0].seq.store(3, Relaxed);
        ring.post([2; FIELDS]);
        assert_eq!(ring.read(0), None);
        assert_eq!(ring.entries[0].fields[0].load(Relaxed), 1);
        // A late writer does not replace what is newer.
        ring.entries[0].seq.store(100, Relaxed);
        ring.post([3; FIELDS]);
        assert_eq!(ring.read(0), Some((49, [1; FIELDS])));
    }
}
