//! Address space that is kept back for allocations that cannot fail.
//!
//! A request that was taken must get its CQE, also when no memory is to be had. So whatever starts
//! something new asks [`ensure`] first: a ring, a registration, the next SQE. It is refused while
//! the reserve cannot be filled up. What was started before lives on the heap's free blocks and, at
//! need, on the reserve.
//!
//! A table that grows doubles: no block is larger than twice the largest so far, and the reserve
//! has room for two such and some. Its pages are never touched before they are needed.
//! `docs/decisions/0024` has the alternatives.

use crate::arch::PAGE_SIZE;
use crate::linux::general::MAP_NORESERVE;
use crate::mm;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use syscalls::Errno;

/// Bytes of the reserve of a heap that has only small blocks.
const LEAST: usize = 512 << 10;
/// Bits of [`RESERVE`] that hold the number of pages; the number of the first page is above.
const COUNT_BITS: u32 = 28;

/// What is kept back, in one word: taken from and replaced without a lock.
static RESERVE: AtomicU64 = AtomicU64::new(0);
/// The largest block that was asked for.
static LARGEST: AtomicUsize = AtomicUsize::new(0);
static IS_LOW: AtomicBool = AtomicBool::new(true);

/// Some pages.
#[derive(Clone, Copy)]
struct PageRange {
    first: u64,
    count: u64,
}

impl PageRange {
    fn unpack(word: u64) -> Self {
        Self { first: word >> COUNT_BITS, count: word & ((1 << COUNT_BITS) - 1) }
    }

    fn pack(self) -> u64 {
        self.first << COUNT_BITS | self.count
    }

    fn start(self) -> usize {
        usize::try_from(self.first).map_or(0, |first| first * PAGE_SIZE)
    }
}

/// Whether less is kept back than should be. Almost never true for long.
#[inline]
#[must_use]
pub fn is_low() -> bool {
    IS_LOW.load(Relaxed)
}

/// Fills the reserve up.
///
/// # Errors
/// `ENOMEM`: what is new must be refused.
#[inline]
pub fn ensure() -> Result<(), Errno> {
    if is_low() { refill() } else { Ok(()) }
}

/// As [`ensure`], before a block of this size is asked for.
///
/// # Errors
/// `ENOMEM`.
pub fn ensure_block(bytes: usize) -> Result<(), Errno> {
    note_block(bytes);
    ensure()
}

#[cold]
fn refill() -> Result<(), Errno> {
    // First: a block that is taken meanwhile makes it low again.
    IS_LOW.store(false, Relaxed);
    let wanted = LEAST.saturating_add(LARGEST.load(Relaxed).saturating_mul(4)).div_ceil(PAGE_SIZE).min((1 << COUNT_BITS) - 1);
    if PageRange::unpack(RESERVE.load(Acquire)).count >= wanted as u64 {
        return Ok(());
    }
    let at = mm::map_anonymous(wanted * PAGE_SIZE, MAP_NORESERVE).map_err(|_| {
        IS_LOW.store(true, Relaxed);
        Errno::ENOMEM
    })?;
    let fresh = PageRange { first: (at / PAGE_SIZE) as u64, count: wanted as u64 };
    let rest = PageRange::unpack(RESERVE.swap(fresh.pack(), AcqRel));
    if rest.count > 0 {
        // SAFETY: what is left of our own mapping; nobody can take from it any more.
        let _ = unsafe { mm::unmap(rest.start(), usize::try_from(rest.count).map_or(0, |count| count * PAGE_SIZE)) };
    }
    Ok(())
}

/// A part of the reserve, at most half of it: one block must not leave the others nothing.
pub(crate) fn take(bytes: usize) -> Option<usize> {
    let needed = bytes.div_ceil(PAGE_SIZE) as u64;
    let split = |word| {
        let PageRange { first, count } = PageRange::unpack(word);
        (needed * 2 <= count).then(|| PageRange { first: first + needed, count: count - needed }.pack())
    };
    let before = RESERVE.fetch_update(AcqRel, Acquire, split).ok()?;
    IS_LOW.store(true, Relaxed);
    Some(PageRange::unpack(before).start())
}

/// A block of this size is asked for.
#[inline]
pub(crate) fn note_block(bytes: usize) {
    if bytes > LARGEST.load(Relaxed) {
        LARGEST.store(bytes, Relaxed);
        IS_LOW.store(true, Relaxed);
    }
}

/// Runs `f`, whose blocks are gone when it returns, and do not count.
pub fn without_noting<R>(f: impl FnOnce() -> R) -> R {
    let before = LARGEST.load(Relaxed);
    let result = f();
    LARGEST.store(before, Relaxed);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserve_gives_at_most_half_and_is_filled_up_again() {
        ensure().unwrap();
        assert!(!is_low());
        assert_eq!(take(LEAST / 2 + PAGE_SIZE), None);
        assert!(!is_low());
        let (a, b) = (take(5000).unwrap(), take(1).unwrap());
        assert_eq!(b, a + 2 * PAGE_SIZE);
        assert!(is_low());
        note_block(LEAST);
        ensure().unwrap();
        let c = take(2 * LEAST).expect("twice the largest block");
        assert!(c != a && is_low());
    }
}
