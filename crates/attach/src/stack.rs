//! The engine's stacks: a program's thread runs on one while it is inside the engine.
//!
//! A thread may come with little stack left (a goroutine, a vfork child, a signal handler), so none
//! of the engine's frames go onto its own. Stacks are taken from and returned to lock-free lists.
//! The list operations themselves are in `arch`, in assembly, because at a rewritten site no vector
//! register may be touched before it is saved.
//!
//! A stack that is never returned (siglongjmp out of a signal handler that interrupted the engine,
//! pthread_exit there) is leaked, nothing else: no other thread can reach it, and a list never
//! holds it twice.
//!
//! List heads carry a counter in the bits that alignment leaves free: a head that was taken, pushed
//! back and taken again in between does not compare equal. Reading a stale `next` at all is safe
//! because stacks are never unmapped.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use uringlet_sys::linux::general::{MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, MAP_STACK, PROT_NONE, PROT_READ, PROT_WRITE};
use uringlet_sys::mm;

use crate::arch::PAGE;

/// Bytes of one stack, guard page included; also its alignment.
pub(crate) const STACK_BYTES: usize = 256 << 10;
/// The top 64 bytes hold the list link (+0), the list that the stack belongs to (+8), [`DEFERRED`]
/// and [`FAULT_CHECK`]; frames start below.
pub(crate) const STACK_TOP: usize = STACK_BYTES - 64;
/// Three words of `signals::deferral`: timer, mask, signals. `arch` reads and clears them.
pub(crate) const DEFERRED: usize = STACK_TOP + 16;
/// One word of `signals::fault_check`. `arch` clears it.
pub(crate) const FAULT_CHECK: usize = STACK_TOP + 40;
/// The number of lists: threads on different stacks seldom share a cache line.
const SHARDS: usize = 16;

/// One list, alone on its cache line.
#[repr(C, align(64))]
pub(crate) struct Shard {
    head: AtomicU64,
}

/// All lists. `arch` selects one by a hash of the stack pointer.
pub(crate) static POOL: [Shard; SHARDS] = [const { Shard { head: AtomicU64::new(0) } }; SHARDS];

/// Stacks come from arenas of 64, so that an address can be recognised as one of theirs. Each word:
/// an arena's base and, in the bits that its alignment leaves free, how many of its stacks are in
/// use. Filled from the front.
static ARENAS: [AtomicUsize; 256] = [const { AtomicUsize::new(0) }; 256];
const ARENA_STACKS: usize = 64;
const ARENA_BYTES: usize = ARENA_STACKS * STACK_BYTES;

/// The base of the engine stack that `address` lies in.
pub(crate) fn containing(address: usize) -> Option<usize> {
    let mut bases = ARENAS.iter().map(|arena| arena.load(Ordering::Acquire) & !(ARENA_BYTES - 1)).take_while(|&base| base != 0);
    bases.any(|base| address.wrapping_sub(base) < ARENA_BYTES).then_some(address & !(STACK_BYTES - 1))
}

/// Makes one more stack for the list at `shard`; 0 when there is no memory.
pub(crate) extern "C" fn grow(shard: usize) -> usize {
    for arena in &ARENAS {
        if let Some(base) = next_of(arena) {
            // SAFETY: no thread uses this stack of the arena yet. Its lowest page stays as the
            // guard.
            unsafe {
                if mm::protect(base + PAGE, STACK_BYTES - PAGE, PROT_READ | PROT_WRITE).is_err() {
                    return 0;
                }
                ((base + STACK_TOP + 8) as *mut usize).write(shard);
            }
            return base;
        }
    }
    0
}

/// The next unused stack of an arena, which is mapped first if need be.
fn next_of(arena: &AtomicUsize) -> Option<usize> {
    let mut now = arena.load(Ordering::Acquire);
    if now == 0 {
        let base = map_arena()?;
        match arena.compare_exchange(0, base, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => now = base,
            Err(other) => {
                // SAFETY: our own mapping, which no other thread has seen.
                let _ = unsafe { mm::unmap(base, ARENA_BYTES) };
                now = other;
            }
        }
    }
    let take = |now: usize| (now % ARENA_BYTES < ARENA_STACKS).then_some(now + 1);
    let before = match arena.compare_exchange(now, take(now)?, Ordering::AcqRel, Ordering::Acquire) {
        Ok(before) => before,
        Err(_) => arena.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).ok()?,
    };
    Some((before & !(ARENA_BYTES - 1)) + before % ARENA_BYTES * STACK_BYTES)
}

/// Address space for an arena, aligned to its size.
fn map_arena() -> Option<usize> {
    const FLAGS: u32 = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK;
    const NO_FD: i32 = -1;
    // SAFETY: a new mapping, at an address of the kernel's choice.
    let at = unsafe { mm::map(0, 2 * ARENA_BYTES, PROT_NONE, FLAGS, NO_FD, 0) }.ok()?;
    let base = at.next_multiple_of(ARENA_BYTES);
    for unused in [at..base, base + ARENA_BYTES..at + 2 * ARENA_BYTES] {
        if !unused.is_empty() {
            // SAFETY: a part of this very mapping.
            let _ = unsafe { mm::unmap(unused.start, unused.len()) };
        }
    }
    Some(base)
}

/// The number of stacks in the lists.
#[cfg(test)]
pub(crate) fn free_stacks() -> usize {
    let mut count = 0;
    for shard in &POOL {
        let mut at = shard.head.load(Ordering::Acquire) as usize & !(STACK_BYTES - 1);
        while at != 0 {
            count += 1;
            // SAFETY: list members are mapped stacks; the test that asks is the only thread.
            at = unsafe { ((at + STACK_TOP) as *const usize).read() };
        }
    }
    count
}
