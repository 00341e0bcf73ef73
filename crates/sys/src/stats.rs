//! Counters of the engine, for `uringlet stat`: a block of memory that another process reads, at no cost for this one.
//!
//! The tool finds the block by an ELF note (`.note.uringlet`: the layout's number, and the block's distance) in whatever
//! object of a process has the engine, and reads it by process_vm_readv(2). The block describes itself: its [`StatsHeader`]
//! says where counters, their names and events stand, so that tool and engine only need to agree on the header.
//!
//! Who writes: a ring's counters only whoever holds that ring's lock, so that a load and a store do. The last block is
//! shared by all rings whose place is [`SHARED`] or above: there it takes an atomic addition. Readers see each counter whole,
//! but no two of the same moment.
//!
//! Counters are never reset: they count for a place, whose rings come and go, and a forked child goes on from its
//! parent's.

#[cfg(not(loom))]
mod block;
#[cfg(any(test, not(loom)))]
mod events;

use block::change;
#[cfg(not(loom))]
pub use block::{LAYOUT_VERSION, NOTE_NAME, StatsHeader};
use core::sync::atomic::Ordering::Relaxed;

/// Blocks of counters.
const BLOCKS: usize = 64;
/// The place from which on rings share a block.
pub const SHARED: u32 = BLOCKS as u32 - 1;

/// Declares the counters: `kind Name "name" "doc"`. The kind is how several rings' values make one: `+` they add up,
/// `=` a level that comes and goes (they add up), `^` the highest ever (the highest counts).
macro_rules! counters {
    ($($kind:literal $name:ident $text:literal $doc:literal;)*) => {
        /// What is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Counter {
            $(#[doc = $doc] $name,)*
        }

        /// Name and meaning of each counter, for people.
        pub const COUNTER_DOCS: &[(&str, &str)] = &[$(($text, $doc)),*];

        /// Kind and name of each counter, each with a NUL.
        #[cfg(not(loom))]
        const NAMES: &str = concat!($($kind, $text, "\0",)*);
        #[cfg(not(loom))]
        const COUNTERS: usize = [$(Counter::$name),*].len();
    };
}

counters! {
    "+" Submitted "submitted" "SQEs consumed.";
    "+" WritesInline "writes_inline" "Buffered writes that the submitting thread executed.";
    "+" WritesNowait "writes_nowait" "Writes that `RWF_NOWAIT` completed, whole.";
    "+" WritesWorker "writes_worker" "Buffered writes that went to a worker.";
    "+" SlowInlineWrites "slow_inline_writes" "Inline writes that took longer than they may.";
    "+" FilesDemoted "files_demoted" "Files that went down a gear.";
    "+" FilesPromoted "files_promoted" "Files that came back up.";
    "+" ShortWrites "short_writes" "Writes of which a worker finished the rest.";
    "+" Throttled "throttled" "Writes put off because too many pages were dirty.";
    "+" ThrottledNs "throttled_ns" "How long they were put off, all together, ns.";
    "=" ThrottledNow "throttled_now" "How many are put off at this moment.";
    "^" ThrottledMax "throttled_max" "The most that ever were.";
    "+" UringletRunsEmpty "uringlet_runs_empty" "Runs of a uringlet worker that found nothing.";
    "+" UringletRunsInline "uringlet_runs_inline" "Runs that completed all without blocking.";
    "+" UringletRunsScheduled "uringlet_runs_scheduled" "Runs that blocked, and handed the baton over.";
    "+" UringletPunts "uringlet_punts" "Writes that went to io-wq instead of the line, for their files often block.";
    "+" UringletRunByWaiter "uringlet_run_by_waiter" "Requests in line that a thread of the program did itself, which had to wait for them anyway.";
}

/// Once more, under the ring's lock.
#[inline(always)]
pub fn bump(ring: u32, counter: Counter) {
    add(ring, counter, 1);
}

/// `n` more, under the ring's lock.
#[inline(always)]
pub fn add(ring: u32, counter: Counter, n: u64) {
    change(ring, counter, |word, old| match old {
        Some(old) => word.store(old.wrapping_add(n), Relaxed),
        None => drop(word.fetch_add(n, Relaxed)),
    });
}

/// `n` less of a level, under the ring's lock.
#[inline(always)]
pub fn sub(ring: u32, counter: Counter, n: u64) {
    add(ring, counter, n.wrapping_neg());
}

/// At least `value`, under the ring's lock.
#[inline(always)]
pub fn raise(ring: u32, counter: Counter, value: u64) {
    change(ring, counter, |word, old| match old {
        Some(old) => word.store(old.max(value), Relaxed),
        None => drop(word.fetch_max(value, Relaxed)),
    });
}

/// A counter as it is.
#[must_use]
pub fn value(ring: u32, counter: Counter) -> u64 {
    let mut value = 0;
    change(ring, counter, |word, _| value = word.load(Relaxed));
    value
}

/// A model counts nothing.
#[cfg(loom)]
mod block {
    use super::Counter;
    use core::sync::atomic::AtomicU64;

    pub(super) fn change(_ring: u32, _counter: Counter, _change: impl FnOnce(&AtomicU64, Option<u64>)) {}

    pub(super) fn short_write(_fields: [u64; 4]) {}
}

/// A write of `wanted` bytes at `offset` got only so far at first; a worker does the rest.
#[cold]
pub fn short_write(ring: u32, offset: u64, wanted: u64, got: u64) {
    bump(ring, Counter::ShortWrites);
    block::short_write([u64::from(ring), offset, wanted, got]);
}

#[cfg(all(test, not(loom)))]
mod tests {
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
    fn the_names_are_as_many_as_the_counters() {
        assert_eq!(NAMES.split_terminator('\0').count(), COUNTERS);
        let last = NAMES.split_terminator('\0').nth(Counter::UringletRunByWaiter as usize);
        assert_eq!(last, Some("+uringlet_run_by_waiter"));
        assert!(NAMES.split_terminator('\0').all(|name| name.starts_with(['+', '=', '^'])));
    }
}
