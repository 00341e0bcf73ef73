//! The addresses whose calls are trapped.
//!
//! Filters pile up: each covers what the earlier ones do not. A compiler that makes its code in
//! small pieces would need a filter for each, so a piece is covered together with as much around it
//! as is covered already, but no loaded object: libc's own calls are not to be trapped.

use alloc::format;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use uringlet_sys::lock::Mutex;
use uringlet_sys::seccomp::{self, FilteredThreads};

use super::calls::RULES;
use super::state::{TRAP_DATA, covers_new_code, is_confined};
use crate::arch::{PAGE, own_span};
use crate::convert::Register;
use crate::entry::on_engine_stack;
use crate::explain;
use crate::rewrite::LoadedObject;

/// The most filters that one process installs. They are run one after the other.
const MAX_FILTERS: usize = 64;

/// What one filter covers.
struct CoveredRange {
    start: AtomicU64,
    end: AtomicU64,
}

/// Without a lock: a forked child may find it at any time. Two threads that make code at the same
/// time may install two filters for the same addresses.
static COVERED: [CoveredRange; MAX_FILTERS] = [const { CoveredRange { start: AtomicU64::new(0), end: AtomicU64::new(0) } }; MAX_FILTERS];
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Where the loaded objects are.
static OBJECTS: Mutex<Vec<Range<u64>>> = Mutex::new(Vec::new());

/// What is covered now.
fn covered() -> impl Iterator<Item = Range<u64>> {
    let count = COUNT.load(Ordering::Acquire).min(MAX_FILTERS);
    COVERED[..count].iter().map(|range| range.start.load(Ordering::Acquire)..range.end.load(Ordering::Acquire))
}

/// The objects that are loaded now.
pub(crate) fn note_objects(objects: &[LoadedObject]) {
    if covers_new_code()
        && let Some(mut known) = OBJECTS.try_lock()
    {
        *known = objects.iter().map(LoadedObject::span).chain([own_span()]).collect();
    }
}

/// The program has made memory executable: its calls are trapped before it can run.
pub(crate) fn note_code(start: usize, len: usize) {
    let range = start as u64..(start as u64).saturating_add(len.next_multiple_of(PAGE).reg() as u64);
    let is_known = covered().any(|covered| covered.start <= range.start && range.end <= covered.end);
    if range.is_empty() || is_known || is_confined() {
        return;
    }
    on_engine_stack(|| {
        // A thread that is not in this process may hold it, after a fork.
        let wide = OBJECTS.try_lock().map_or_else(|| range.clone(), |objects| widened(&range, total(), &objects));
        cover(core::slice::from_ref(&wide));
    });
}

fn total() -> u64 {
    covered().map(|range| range.end - range.start).sum()
}

/// The range with what is around it, up to the next power of two that is at least `bytes`; not the
/// `objects` beside it.
fn widened(range: &Range<u64>, bytes: u64, objects: &[Range<u64>]) -> Range<u64> {
    if bytes == 0 {
        return range.clone();
    }
    let size = bytes.max(range.end - range.start).next_power_of_two();
    let below = objects.iter().map(|object| object.end).filter(|&end| end <= range.start).max().unwrap_or(PAGE as u64);
    let above = objects.iter().map(|object| object.start).filter(|&start| start >= range.end).min().unwrap_or(1 << 47);
    let (start, end) = (range.start & !(size - 1), range.end.next_multiple_of(size));
    start.max(below)..end.min(above)
}

/// Traps the calls of code at these addresses, in all threads. False: the system forbids it, or
/// there are too many filters.
pub(super) fn cover(ranges: &[Range<u64>]) -> bool {
    if COUNT.load(Ordering::Relaxed) + ranges.len() > MAX_FILTERS {
        explain::line(|| format!("code at {ranges:x?}: calls are not trapped, there are {MAX_FILTERS} filters already"));
        return false;
    }
    match seccomp::trap(&RULES, ranges, TRAP_DATA) {
        Ok(threads) => {
            ranges.iter().for_each(note);
            let whose = if threads == FilteredThreads::All { "" } else { " in this thread only: others have a filter of their own" };
            explain::line(|| format!("code at {ranges:x?}: io_uring calls are trapped (seccomp){whose}"));
            true
        }
        Err(errno) => {
            explain::line(|| format!("code at {ranges:x?}: calls are not trapped: seccomp(2) fails with {errno}"));
            false
        }
    }
}

fn note(range: &Range<u64>) {
    let Some(slot) = COVERED.get(COUNT.fetch_add(1, Ordering::AcqRel)) else { return };
    // The end last: until then nothing lies in it.
    slot.start.store(range.start, Ordering::Release);
    slot.end.store(range.end, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_of_code_is_covered_with_what_is_around_it() {
        const MIB: u64 = 1 << 20;
        let piece = 100 * MIB..100 * MIB + 0x1000;
        assert_eq!(widened(&piece, 0, &[]), piece);
        assert_eq!(widened(&piece, MIB - 1, &[]), 100 * MIB..101 * MIB);
        assert_eq!(widened(&piece, 64 * MIB, &[]), 64 * MIB..128 * MIB);
        let objects = [70 * MIB..90 * MIB, 110 * MIB..111 * MIB, 300 * MIB..301 * MIB];
        assert_eq!(widened(&piece, 64 * MIB, &objects), 90 * MIB..110 * MIB);
        let beside = [99 * MIB..piece.start, piece.end..101 * MIB];
        assert_eq!(widened(&piece, 64 * MIB, &beside), piece);
    }
}
