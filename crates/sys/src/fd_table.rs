//! The engine's facts about each descriptor number of this process: two words a number, read
//! without a lock. One holds the number's owner and the kind of its file; the other is for the
//! write path, which keeps a history of each file.
//!
//! The table is one lazily touched mapping; numbers beyond it are never rings and never cached. All
//! facts here are hints: they are stale once the program closes a number by a call that is not
//! intercepted. Users check before it matters.

use crate::linux::general::MAP_NORESERVE;
use crate::mm;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize};
use syscalls::Errno;

/// Numbers covered: as many as the default `fs.nr_open`.
pub const NUMBERS: usize = 1 << 20;

/// Bits of the first word.
const RING_MASK: u64 = 0x007f_ffff;
/// The POLL_ADD of that ring has been told that the file can be read, and it has not been read
/// since.
const TOLD: u64 = 1 << 23;
const INTERNAL: u64 = 1 << 24;
const VIRTUAL: u64 = 1 << 25;
const LINGERING: u64 = 1 << 26;
const LEAVING: u64 = 1 << 27;
/// The trace that has the name of the number's file, counted modulo 7; 0: none.
const NAMED_SHIFT: u32 = 28;
const NAMED_MASK: u64 = 7 << NAMED_SHIFT;
/// The ring of the mask waits for the file's readiness (POLL_ADD).
const POLLED: u64 = 1 << 31;
const KIND_SHIFT: u32 = 32;
const KIND_MASK: u64 = 0xffff << KIND_SHIFT;
const USERS_SHIFT: u32 = 48;
const ONE_USER: u64 = 1 << USERS_SHIFT;

static TABLE: AtomicUsize = AtomicUsize::new(0);

/// The facts about a number. Both words are in one cache line: they are often read together.
#[repr(C, align(16))]
struct FdEntry {
    word: AtomicU64,
    history: AtomicU64,
}

#[inline]
fn entry(fd: i32) -> Option<&'static FdEntry> {
    let base = TABLE.load(Acquire);
    if base == 0 || fd as u32 as usize >= NUMBERS {
        return None;
    }
    // SAFETY: the mapping holds NUMBERS entries, is never unmapped, and is only used as atomics.
    Some(unsafe { &*(base as *const FdEntry).add(fd as u32 as usize) })
}

#[inline]
fn word(fd: i32) -> Option<&'static AtomicU64> {
    entry(fd).map(|entry| &entry.word)
}

/// Makes the table if there is none yet.
///
/// # Errors
/// `ENOMEM`.
pub fn init() -> Result<(), Errno> {
    if TABLE.load(Acquire) != 0 {
        return Ok(());
    }
    const LEN: usize = NUMBERS * size_of::<FdEntry>();
    let base = mm::map_anonymous(LEN, MAP_NORESERVE)?;
    if TABLE.compare_exchange(0, base, AcqRel, Acquire).is_err() {
        // SAFETY: another thread was first; this mapping was never published.
        let _ = unsafe { mm::unmap(base, LEN) };
    }
    Ok(())
}

fn update(fd: i32, mask: u64, value: u64) {
    if let Some(word) = word(fd) {
        let _ = word.fetch_update(AcqRel, Relaxed, |old| Some(old & !mask | value));
    }
}

/// The number is the engine's. All else about it is forgotten.
pub(crate) fn set_internal(fd: i32) {
    update(fd, u64::MAX, INTERNAL);
}

/// The number, which the program was started with, is the engine's. Children inherit it.
pub fn keep(fd: i32) {
    set_internal(fd);
}

/// Whether the number is the engine's.
#[inline]
#[must_use]
pub fn is_internal(fd: i32) -> bool {
    word(fd).is_some_and(|w| w.load(Relaxed) & INTERNAL != 0)
}

/// The next number at or above `from` that is the engine's, or that the engine is leaving.
#[must_use]
pub fn next_internal(from: u32) -> Option<u32> {
    let is_kept = |fd: u32| word(fd as i32).is_some_and(|w| w.load(Relaxed) & (INTERNAL | LEAVING) != 0);
    (from..NUMBERS as u32).take_while(|_| TABLE.load(Relaxed) != 0).find(|&fd| is_kept(fd))
}

/// The engine is leaving the number (`fd::LeavingNumber`). All else about it is forgotten.
pub(crate) fn begin_leaving(fd: i32) {
    LAST_LEAVING.fetch_max(fd, Relaxed);
    update(fd, u64::MAX, LEAVING);
}

/// The engine has left the number. What others know about it by now stays.
pub(crate) fn end_leaving(fd: i32) {
    update(fd, LEAVING, 0);
}

/// Whether the engine is leaving the number. One load.
#[inline]
#[must_use]
pub fn is_leaving(fd: i32) -> bool {
    word(fd).is_some_and(|w| w.load(Acquire) & LEAVING != 0)
}

/// In a forked child: the threads that were leaving numbers are not there.
pub(crate) fn end_all_leaving() {
    (0..=LAST_LEAVING.load(Relaxed)).filter(|&fd| is_leaving(fd)).for_each(end_leaving);
}

/// The index of the ring behind this number.
#[inline]
#[must_use]
pub fn ring_index(fd: i32) -> Option<u32> {
    let word = word(fd)?.load(Acquire);
    if word & POLLED != 0 { None } else { index_in(word) }
}

fn index_in(word: u64) -> Option<u32> {
    ((word & RING_MASK) as u32).checked_sub(1)
}

/// A POLL_ADD of the ring with this index waits on the number. Of several rings the last one is
/// known. Not of numbers of rings and virtual files.
pub fn set_polling_ring(fd: i32, index: u32) {
    let set = |old: u64| {
        let is_free = old & (INTERNAL | VIRTUAL) == 0 && (old & RING_MASK == 0 || old & POLLED != 0);
        is_free.then_some(old & !(RING_MASK | TOLD) | POLLED | (u64::from(index) + 1))
    };
    if let Some(word) = word(fd) {
        let _ = word.fetch_update(AcqRel, Relaxed, set);
    }
}

/// A POLL_ADD of the ring with this index waits on the number no longer.
pub fn clear_polling_ring(fd: i32, index: u32) {
    let clear = |old: u64| (old & POLLED != 0 && index_in(old) == Some(index)).then_some(old & !(POLLED | TOLD | RING_MASK));
    if let Some(word) = word(fd) {
        let _ = word.fetch_update(AcqRel, Relaxed, clear);
    }
}

/// The POLL_ADD of the ring with this index has been told that the number's file can be read.
pub fn set_told(fd: i32, index: u32) {
    let set = |old: u64| (old & (POLLED | TOLD) == POLLED && index_in(old) == Some(index)).then_some(old | TOLD);
    if let Some(word) = word(fd) {
        let _ = word.fetch_update(AcqRel, Relaxed, set);
    }
}

/// The program is about to read from this number: the index of the ring that waits for the
/// readiness of its file and may not have been told of it, as far as known.
#[inline]
#[must_use]
pub fn untold_ring(fd: i32) -> Option<u32> {
    let word = word(fd)?.load(Acquire);
    if word & POLLED == 0 {
        return None;
    }
    if word & TOLD == 0 {
        return index_in(word);
    }
    clear_told(fd);
    None
}

/// The program reads what the POLL_ADD was told of.
pub fn clear_told(fd: i32) {
    update(fd, TOLD, 0);
}

/// Records the ring behind a number; `None`: it is a ring's no longer.
pub fn set_ring_index(fd: i32, index: Option<u32>) {
    // The thread that is leaving the number ends that itself.
    update(fd, !LEAVING, index.map_or(0, |i| u64::from(i) + 1));
}

/// Whether the number is a virtual file's: a file of the engine, behind a descriptor that the
/// kernel knows as another file.
#[inline]
#[must_use]
pub fn is_virtual(fd: i32) -> bool {
    word(fd).is_some_and(|w| w.load(Acquire) & VIRTUAL != 0)
}

/// Records whether the number is a virtual file's.
pub fn set_virtual(fd: i32, on: bool) {
    update(fd, VIRTUAL, if on { VIRTUAL } else { 0 });
}

/// The highest number that lingers or has.
static LAST_LINGERING: AtomicI32 = AtomicI32::new(-1);

/// The highest number that the engine has left.
static LAST_LEAVING: AtomicI32 = AtomicI32::new(-1);

/// The number is the engine's, and is to be closed later (`fd::close_keeping_locks`). False: the
/// table does not cover it.
#[must_use]
pub(crate) fn set_lingering(fd: i32) -> bool {
    LAST_LINGERING.fetch_max(fd, Relaxed);
    update(fd, u64::MAX, INTERNAL | LINGERING);
    word(fd).is_some()
}

/// Whether the number lingers.
#[must_use]
pub fn is_lingering(fd: i32) -> bool {
    word(fd).is_some_and(|word| word.load(Relaxed) & LINGERING != 0)
}

/// The caller is [leaving](begin_leaving) a lingering number: true for one caller.
#[must_use]
pub(crate) fn leave_lingering(fd: i32) -> bool {
    let leave = |old: u64| (old & LINGERING != 0).then_some(LEAVING);
    LAST_LEAVING.fetch_max(fd, Relaxed);
    word(fd).is_some_and(|word| word.fetch_update(AcqRel, Relaxed, leave).is_ok())
}

/// The next number at or above `from` that lingers.
#[must_use]
pub fn next_lingering(from: i32) -> Option<i32> {
    let lingers = |fd: i32| word(fd).is_some_and(|word| word.load(Relaxed) & LINGERING != 0);
    (from..=LAST_LINGERING.load(Relaxed)).find(|&fd| lingers(fd))
}

/// Whether the number is a ring's or a virtual file's. One load.
#[inline]
#[must_use]
pub fn is_ours(fd: i32) -> bool {
    word(fd).is_some_and(|w| {
        let word = w.load(Acquire);
        let is_ring = word & RING_MASK != 0 && word & POLLED == 0;
        is_ring || word & VIRTUAL != 0
    })
}

/// Whether a transfer by the program concerns the engine: the number is a ring's or a virtual
/// file's, or a ring waits for its readiness. One load.
#[inline]
#[must_use]
pub fn concerns_transfers(fd: i32) -> bool {
    word(fd).is_some_and(|w| w.load(Acquire) & (RING_MASK | VIRTUAL) != 0)
}

/// The last known kind of the number's file: the caller's own code, 0 for unknown.
#[inline]
#[must_use]
pub fn kind(fd: i32) -> u16 {
    word(fd).map_or(0, |w| (w.load(Relaxed) >> KIND_SHIFT) as u16)
}

/// Remembers the kind of a file.
pub fn set_kind(fd: i32, kind: u16) {
    update(fd, KIND_MASK, u64::from(kind) << KIND_SHIFT);
}

/// Counts a request in flight that uses this number.
pub fn add_user(fd: i32) {
    if let Some(word) = word(fd) {
        word.fetch_add(ONE_USER, AcqRel);
    }
}

/// Uncounts a request that used this number.
pub fn drop_user(fd: i32) {
    if let Some(word) = word(fd) {
        let _ = word.fetch_update(AcqRel, Relaxed, |old| old.checked_sub(ONE_USER));
    }
}

/// Whether requests in flight use this number.
#[inline]
#[must_use]
pub fn has_users(fd: i32) -> bool {
    word(fd).is_some_and(|w| w.load(Acquire) >> USERS_SHIFT != 0)
}

/// Whether there are no facts about the number: no ring, not the engine's, no requests, no cached
/// kind. One load.
#[inline]
#[must_use]
pub fn is_unused(fd: i32) -> bool {
    word(fd).is_none_or(|w| w.load(Relaxed) == 0)
}

/// Whether this trace has the name of the number's file; from now on it has. `trace` is not 0.
#[inline]
pub fn is_named(fd: i32, trace: u8) -> bool {
    let name = u64::from(trace) << NAMED_SHIFT & NAMED_MASK;
    let is_known = word(fd).is_none_or(|w| w.load(Relaxed) & NAMED_MASK == name);
    if !is_known {
        update(fd, NAMED_MASK, name);
    }
    is_known
}

/// The file has another name than a trace was told.
pub fn forget_name(fd: i32) {
    update(fd, NAMED_MASK, 0);
}

/// Forgets the kind, the name, the ring that waits and the write history of a number that was
/// closed.
pub fn forget_kind(fd: i32) {
    let is_polled = word(fd).is_some_and(|word| word.load(Acquire) & POLLED != 0);
    let polled = if is_polled { POLLED | TOLD | RING_MASK } else { 0 };
    update(fd, KIND_MASK | NAMED_MASK | polled, 0);
    if let Some(entry) = entry(fd) {
        entry.history.store(0, Relaxed);
    }
}

/// History of the writes to the number's file: the caller's own code, 0 for none (or a number
/// beyond the table).
#[inline]
#[must_use]
pub fn history(fd: i32) -> u64 {
    entry(fd).map_or(0, |entry| entry.history.load(Relaxed))
}

/// Changes the history. Returns the new value. Numbers beyond the table have no history.
pub fn change_history(fd: i32, change: impl Fn(u64) -> u64) -> u64 {
    let Some(entry) = entry(fd) else { return 0 };
    match entry.history.fetch_update(Relaxed, Relaxed, |old| Some(change(old))) {
        Ok(old) | Err(old) => change(old),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_polled_is_a_virtual_files_as_well() {
        const FD: i32 = 1_000_001;
        init().unwrap();
        set_polling_ring(FD, 4);
        assert_eq!((untold_ring(FD), ring_index(FD), is_ours(FD)), (Some(4), None, false));
        // A close was not seen.
        set_virtual(FD, true);
        assert!(is_ours(FD));
        clear_polling_ring(FD, 5);
        assert_eq!(untold_ring(FD), Some(4));
        set_ring_index(FD, Some(7));
        assert_eq!((untold_ring(FD), ring_index(FD), is_ours(FD)), (None, Some(7), true));
        set_ring_index(FD, None);
        assert!(is_unused(FD));
    }

    #[test]
    fn a_readiness_that_was_told_is_looked_at_again_after_a_read() {
        const FD: i32 = 1_000_002;
        init().unwrap();
        set_polling_ring(FD, 4);
        set_told(FD, 5);
        assert_eq!(untold_ring(FD), Some(4), "another ring was told");
        set_told(FD, 4);
        assert_eq!((untold_ring(FD), untold_ring(FD)), (None, Some(4)));
        set_told(FD, 4);
        set_polling_ring(FD, 4);
        assert_eq!(untold_ring(FD), Some(4), "another poll");
        set_told(FD, 4);
        clear_polling_ring(FD, 4);
        assert!(is_unused(FD));
    }
}
