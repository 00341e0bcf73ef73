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

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use uringlet_sys::linux::general::{MAP_ANONYMOUS, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, MAP_STACK, PROT_NONE, PROT_READ, PROT_WRITE};
use uringlet_sys::{mm, valgrind};

use crate::arch::PAGE;
use crate::convert::address;

/// Flags of the mappings.
const FLAGS: u32 = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK;
const NO_FD: i32 = -1;

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

/// Stacks for threads whose list is empty: see `site_entry`.
pub(crate) static RESERVE: Shard = Shard { head: AtomicU64::new(0) };
/// How many there are. Further threads wait meanwhile.
const RESERVED: usize = 2;
/// How long a thread sleeps that waits for one, as a `struct timespec`: a millisecond.
pub(crate) static PAUSE: [i64; 2] = [0, 1_000_000];

static IS_PREPARED: AtomicBool = AtomicBool::new(false);

/// Fills the reserve, before a call is rewritten or trapped. Without memory it stays empty.
pub(crate) fn prepare_reserve() {
    if IS_PREPARED.swap(true, Ordering::AcqRel) {
        return;
    }
    for _ in 0..RESERVED {
        reserve_another();
    }
}

/// In a forked child: threads that are not there may have had all of the reserve.
pub(crate) fn refill_reserve() {
    let is_empty = RESERVE.head.load(Ordering::Acquire) < STACK_BYTES as u64;
    if is_empty && IS_PREPARED.load(Ordering::Acquire) {
        reserve_another();
    }
}

/// The stack with this base came from the reserve, and the calling thread is on it. From now on it
/// belongs to the list at `shard`, if another one can be made for the reserve.
pub(crate) extern "C" fn adopt(base: usize, shard: usize) {
    if reserve_another() {
        set_top_word(base, 8, shard);
    }
}

/// Sets a word at the top of a stack that no other thread uses.
fn set_top_word(base: usize, offset: usize, value: usize) {
    // SAFETY: a word of a stack that `grow` has made, and that only the calling thread knows.
    unsafe { ((base + STACK_TOP + offset) as *mut usize).write(value) };
}

fn reserve_another() -> bool {
    let base = grow((&raw const RESERVE).expose_provenance());
    if base == 0 {
        return false;
    }
    let push = |head: u64| {
        let counter = (head + 1) % STACK_BYTES as u64;
        set_top_word(base, 0, address(head - head % STACK_BYTES as u64));
        Some(base as u64 | counter)
    };
    let _ = RESERVE.head.fetch_update(Ordering::AcqRel, Ordering::Acquire, push);
    true
}

/// Stacks come from arenas of 64, so that an address can be recognised as one of theirs. Each word:
/// an arena's base and, in the bits that its alignment leaves free, how many of its stacks are in
/// use. Filled from the front.
static ARENAS: [AtomicUsize; 256] = [const { AtomicUsize::new(0) }; 256];
const ARENA_STACKS: usize = 64;
const ARENA_BYTES: usize = ARENA_STACKS * STACK_BYTES;
/// 2 MiB at both ends of an arena stay unused. valgrind takes a change of the stack pointer by less
/// (`--max-stackframe`) for growth of one stack, unless it knows both stacks; a coroutine's it does
/// not know.
const MARGIN_STACKS: usize = (2 << 20) / STACK_BYTES;
const USED_STACKS: usize = ARENA_STACKS - 2 * MARGIN_STACKS;

/// The base of the engine stack that `address` lies in.
pub(crate) fn containing(address: usize) -> Option<usize> {
    let mut bases = ARENAS.iter().map(|arena| arena.load(Ordering::Acquire) & !(ARENA_BYTES - 1)).take_while(|&base| base != 0);
    bases.any(|base| address.wrapping_sub(base) < ARENA_BYTES).then_some(address & !(STACK_BYTES - 1))
}

/// Makes one more stack for the list at `shard`; 0 when there is no memory.
pub(crate) extern "C" fn grow(shard: usize) -> usize {
    for arena in &ARENAS {
        if let Some(base) = next_of(arena) {
            // Mapped anew: a filter may deny mprotect(2).
            // SAFETY: no thread uses this stack of the arena yet. Its lowest page stays as the
            // guard.
            if unsafe { mm::map(base + PAGE, STACK_BYTES - PAGE, PROT_READ | PROT_WRITE, FLAGS | MAP_FIXED, NO_FD, 0) }.is_err() {
                return 0;
            }
            set_top_word(base, 8, shard);
            valgrind::register_stack(base + PAGE..base + STACK_BYTES);
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
    let take = |now: usize| (now % ARENA_BYTES < USED_STACKS).then_some(now + 1);
    let before = match arena.compare_exchange(now, take(now)?, Ordering::AcqRel, Ordering::Acquire) {
        Ok(before) => before,
        Err(_) => arena.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).ok()?,
    };
    Some((before & !(ARENA_BYTES - 1)) + (MARGIN_STACKS + before % ARENA_BYTES) * STACK_BYTES)
}

/// Address space for an arena, aligned to its size.
fn map_arena() -> Option<usize> {
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
