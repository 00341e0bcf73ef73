//! The last events, for a reader in another process.
//!
//! Each event has a ticket, and by it an entry of the ring. Several writers at once, no lock; a reader who never writes:
//!
//! ```text
//!   writer of ticket t                               reader
//!   entry.seq: even and older -> 2t+1, else give up  a = entry.seq
//!   write the fields                                 read the fields
//!   entry.seq = 2t+2 (release)                       b = entry.seq
//!                                                    a == b, even, not 0: they are of event a/2 - 1
//! ```
//!
//! *Torn*: fields written while they are read. The writer's odd number comes before its first field (release fence), the
//! reader's `b` after its last (acquire fence): whoever has seen a new field sees another number.
//! *Lapped*: a writer that is held up while the ring goes round. The next one for the entry finds an odd number and
//! gives its event up; a late one finds a newer number, and gives up, too. Such events count, but are not shown.
//!
//! The reader in another process has no fences: it reads all entries three times by system calls, numbers from the
//! first and third, fields from the second. Checked by `model`.

#[cfg(all(test, loom))]
mod model;

use crate::sync::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Events kept.
#[cfg(not(loom))]
pub(super) const EVENTS_KEPT: usize = 256;
/// Fields of an event: time (`CLOCK_MONOTONIC`, ns), kind, ring, offset, bytes wanted, bytes got.
const FIELDS: usize = 6;
/// From one entry to the next, bytes.
#[cfg(not(loom))]
pub(super) const STRIDE: usize = size_of::<EventSlot>();

/// Names of the kinds, each with a NUL.
#[cfg(not(loom))]
pub(super) const KINDS: &str = "io_uring_short_write\0";
/// The first of them.
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
    /// Keeps an event, unless its entry is taken.
    pub(super) fn post(&self, fields: [u64; FIELDS]) {
        let ticket = self.total.fetch_add(1, Relaxed);
        let entry = &self.entries[(ticket % N as u64) as usize];
        let seen = entry.seq.load(Relaxed);
        let is_free = seen.is_multiple_of(2) && seen <= 2 * ticket;
        // Acquire: after the fields of whoever had the entry before.
        if !is_free || entry.seq.compare_exchange(seen, 2 * ticket + 1, Acquire, Relaxed).is_err() {
            return;
        }
        release_fence();
        for (place, field) in entry.fields.iter().zip(fields) {
            place.store(field, Relaxed);
        }
        entry.seq.store(2 * ticket + 2, Release);
    }

    /// An entry's ticket and fields, if they are whole.
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
    fn an_entry_in_use_is_left_alone() {
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
