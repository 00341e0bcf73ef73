//! What the engine knows of each descriptor number of this process: two words a number, read without a lock. One says whose
//! the number is and what kind of file it was; the other is kept for the write path, which has a history with each file.
//!
//! The table is one lazily touched mapping; numbers beyond it are never rings and never cached. All knowledge here is a
//! hint that may be stale when a program closes a number by a way that nobody sees; users of it check before it matters.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::sync::atomic::{AtomicU64, AtomicUsize};
use syscalls::{Sysno, raw_syscall};

/// Numbers covered: as many as the default `fs.nr_open`.
pub const NUMBERS: usize = 1 << 20;

/// Bits of the first word.
const RING_MASK: u64 = 0x00ff_ffff;
const INTERNAL: u64 = 1 << 24;
const VIRTUAL: u64 = 1 << 25;
const KIND_SHIFT: u32 = 32;
const KIND_MASK: u64 = 0xffff << KIND_SHIFT;
const USERS_SHIFT: u32 = 48;
const ONE_USER: u64 = 1 << USERS_SHIFT;

static TABLE: AtomicUsize = AtomicUsize::new(0);

/// Whose a number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FdOwner {
    /// The program's, or free.
    Program,
    /// The engine's.
    Engine,
}

/// What is known of a number. Both words in one cache line: who looks at one often looks at the other.
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
pub fn init() {
    if TABLE.load(Acquire) != 0 {
        return;
    }
    const LEN: usize = NUMBERS * size_of::<FdEntry>();
    const PROT_READ_WRITE: usize = 3;
    const MAP_PRIVATE_ANONYMOUS_NORESERVE: usize = 0x02 | 0x20 | 0x4000;
    // SAFETY: a new anonymous mapping overlaps nothing.
    let base = unsafe { raw_syscall!(Sysno::mmap, 0, LEN, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS_NORESERVE, usize::MAX, 0) };
    if base > usize::MAX - 4096 {
        return;
    }
    if TABLE.compare_exchange(0, base, AcqRel, Acquire).is_err() {
        // SAFETY: another thread was first; nobody has seen this mapping.
        unsafe { raw_syscall!(Sysno::munmap, base, LEN) };
    }
}

fn update(fd: i32, mask: u64, value: u64) {
    if let Some(word) = word(fd) {
        let _ = word.fetch_update(AcqRel, Relaxed, |old| Some(old & !mask | value));
    }
}

/// Says whose a number is, and forgets all else about it.
pub fn set_owner(fd: i32, owner: FdOwner) {
    update(fd, u64::MAX, if owner == FdOwner::Engine { INTERNAL } else { 0 });
}

/// Whether the number is the engine's.
#[inline]
#[must_use]
pub fn is_internal(fd: i32) -> bool {
    word(fd).is_some_and(|w| w.load(Relaxed) & INTERNAL != 0)
}

/// The next number at or above `from` that is the engine's.
#[must_use]
pub fn next_internal(from: u32) -> Option<u32> {
    (from..NUMBERS as u32).take_while(|_| TABLE.load(Relaxed) != 0).find(|&fd| is_internal(fd as i32))
}

/// The index of the ring behind this number.
#[inline]
#[must_use]
pub fn ring_index(fd: i32) -> Option<u32> {
    let index = (word(fd)?.load(Acquire) & RING_MASK) as u32;
    index.checked_sub(1)
}

/// The number is a ring's now, or no longer.
pub fn set_ring_index(fd: i32, index: Option<u32>) {
    update(fd, u64::MAX, index.map_or(0, |i| u64::from(i) + 1));
}

/// Whether an engine's file stands behind the number, which the kernel knows as another one.
#[inline]
#[must_use]
pub fn is_virtual(fd: i32) -> bool {
    word(fd).is_some_and(|w| w.load(Acquire) & VIRTUAL != 0)
}

/// The number stands for such a file now, or no longer.
pub fn set_virtual(fd: i32, on: bool) {
    update(fd, VIRTUAL, if on { VIRTUAL } else { 0 });
}

/// Whether the number is a ring's or a virtual file's. One load.
#[inline]
#[must_use]
pub fn is_ours(fd: i32) -> bool {
    word(fd).is_some_and(|w| w.load(Acquire) & (RING_MASK | VIRTUAL) != 0)
}

/// What kind of file the number was last seen to be: the caller's own code, 0 for unknown.
#[inline]
#[must_use]
pub fn kind(fd: i32) -> u16 {
    word(fd).map_or(0, |w| (w.load(Relaxed) >> KIND_SHIFT) as u16)
}

/// Remembers the kind of a file.
pub fn set_kind(fd: i32, kind: u16) {
    update(fd, KIND_MASK, u64::from(kind) << KIND_SHIFT);
}

/// A request that outlives its submission uses this number from now on.
pub fn add_user(fd: i32) {
    if let Some(word) = word(fd) {
        word.fetch_add(ONE_USER, AcqRel);
    }
}

/// A request is done with this number.
pub fn drop_user(fd: i32) {
    if let Some(word) = word(fd) {
        let _ = word.fetch_update(AcqRel, Relaxed, |old| old.checked_sub(ONE_USER));
    }
}

/// Whether requests use this number.
#[inline]
#[must_use]
pub fn has_users(fd: i32) -> bool {
    word(fd).is_some_and(|w| w.load(Acquire) >> USERS_SHIFT != 0)
}

/// Whether the number is unknown: no ring, not ours, not in use, its kind not cached. One load.
#[inline]
#[must_use]
pub fn is_unused(fd: i32) -> bool {
    word(fd).is_none_or(|w| w.load(Relaxed) == 0)
}

/// The number was closed: forget what kind of file it was, and how its writes went.
pub fn forget_kind(fd: i32) {
    update(fd, KIND_MASK, 0);
    if let Some(entry) = entry(fd) {
        entry.history.store(0, Relaxed);
    }
}

/// How writes to the number's file went: the caller's own code, 0 for nothing to remember (or a number beyond the table).
#[inline]
#[must_use]
pub fn history(fd: i32) -> u64 {
    entry(fd).map_or(0, |entry| entry.history.load(Relaxed))
}

/// Changes what is remembered; the new value. Numbers beyond the table remember nothing.
pub fn change_history(fd: i32, change: impl Fn(u64) -> u64) -> u64 {
    let Some(entry) = entry(fd) else { return 0 };
    match entry.history.fetch_update(Relaxed, Relaxed, |old| Some(change(old))) {
        Ok(old) | Err(old) => change(old),
    }
}
