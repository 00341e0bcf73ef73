//! Counters of the engine, for `uringlet stat`: a block of memory that another process reads, at no
//! cost for this one.
//!
//! The tool finds the block by an ELF note (`.note.uringlet`: version of the layout, and the
//! block's distance) in the object of a process that has the engine, and reads it by
//! process_vm_readv(2). The block describes itself: its [`StatsHeader`] says where counters, their
//! names and events are, so that tool and engine need to agree on the header only.
//!
//! Writers: only the holder of a ring's lock changes that ring's counters, by a load and a store.
//!          All rings whose index is
//! [`SHARED`] or above share the last block, with atomic additions. Readers see each counter whole,
//! but no two of the same moment.
//!
//! Counters are never reset: they belong to a ring's index, which is reused, and a forked child
//! continues its parent's.

#[cfg(not(loom))]
mod block;
mod counters;
#[cfg(any(test, not(loom)))]
mod events;

use block::change;
#[cfg(not(loom))]
pub(crate) use block::trace_control;
#[cfg(not(loom))]
pub use block::{LAYOUT_VERSION, NOTE_NAME, StatsHeader};
use core::sync::atomic::Ordering::Relaxed;
pub use counters::{COUNTER_DOCS, Counter, SHARED};

/// Adds 1. The caller holds the ring's lock.
#[inline(always)]
pub fn bump(ring: u32, counter: Counter) {
    add(ring, counter, 1);
}

/// Adds `n`. The caller holds the ring's lock.
#[inline(always)]
pub fn add(ring: u32, counter: Counter, n: u64) {
    change(ring, counter, |word, old| match old {
        Some(old) => word.store(old.wrapping_add(n), Relaxed),
        None => drop(word.fetch_add(n, Relaxed)),
    });
}

/// Subtracts `n` from a level. The caller holds the ring's lock.
#[inline(always)]
pub fn sub(ring: u32, counter: Counter, n: u64) {
    add(ring, counter, n.wrapping_neg());
}

/// Raises a maximum to at least `value`. The caller holds the ring's lock.
#[inline(always)]
pub fn raise(ring: u32, counter: Counter, value: u64) {
    change(ring, counter, |word, old| match old {
        Some(old) => word.store(old.max(value), Relaxed),
        None => drop(word.fetch_max(value, Relaxed)),
    });
}

/// A counter's value.
#[must_use]
pub fn value(ring: u32, counter: Counter) -> u64 {
    let mut value = 0;
    change(ring, counter, |word, _| value = word.load(Relaxed));
    value
}

/// Without counters, for models.
#[cfg(loom)]
mod block {
    use super::counters::Counter;
    use core::sync::atomic::AtomicU64;

    pub(super) fn change(_ring: u32, _counter: Counter, _change: impl FnOnce(&AtomicU64, Option<u64>)) {}

    pub(super) fn short_write(_fields: [u64; 4]) {}
}

/// Records that a write of `wanted` bytes at `offset` wrote `got` bytes at first. A worker writes
/// the rest.
#[cold]
pub fn short_write(ring: u32, offset: u64, wanted: u64, got: u64) {
    bump(ring, Counter::ShortWrites);
    block::short_write([u64::from(ring), offset, wanted, got]);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::counters::{COUNTERS, NAMES};
    use super::*;

    #[test]
    fn rings_count_apart_until_they_share() {
        for _ in 0..3 {
            bump(7, Counter::WritesInline);
        }
        add(8, Counter::WritesInline, 5);
        bump(SHARED, Counter::FilesPromoted);
        bump(SHARED + 100, Counter::FilesPromoted);
        assert_eq!([7, 8, 9].map(|ring| value(ring, Counter::WritesInline)), [3, 5, 0]);
        assert_eq!(value(SHARED + 7, Counter::FilesPromoted), 2);
    }

    #[test]
    fn levels_fall_and_maxima_do_not() {
        for ring in [3, SHARED] {
            add(ring, Counter::ThrottledNow, 5);
            sub(ring, Counter::ThrottledNow, 3);
            raise(ring, Counter::ThrottledMax, 5);
            raise(ring, Counter::ThrottledMax, 2);
            assert_eq!((value(ring, Counter::ThrottledNow), value(ring, Counter::ThrottledMax)), (2, 5));
        }
    }

    #[test]
    fn every_counter_has_a_name() {
        assert_eq!(NAMES.split_terminator('\0').count(), COUNTERS);
        let last = NAMES.split_terminator('\0').nth(Counter::UringletRunByWaiter as usize);
        assert_eq!(last, Some("+uringlet_run_by_waiter"));
        assert!(NAMES.split_terminator('\0').all(|name| name.starts_with(['+', '=', '^'])));
    }
}
