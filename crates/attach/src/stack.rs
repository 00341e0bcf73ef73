//! The engine's stacks: what a program's thread runs on while it is inside the engine.
//!
//! A thread may come with little stack left (a goroutine, a vfork child, a signal handler), so none of the engine's frames go onto it. Stacks are taken from
//! and given back to lock-free lists; the list operations themselves are in `switch`, in assembly, because at a rewritten site no vector register may be
//! touched before it is saved.
//!
//! A stack that is never given back (siglongjmp out of a signal handler that interrupted the engine, pthread_exit there) is lost, nothing else: no other
//! thread can reach it, and a list never holds it twice.
//!
//! List heads carry a counter in the bits that alignment leaves free: a head that was taken, pushed back and taken again in between does not compare equal.
//! That a stale `next` can be read at all is safe because stacks are never unmapped.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use syscalls::{Sysno, raw};

/// Bytes of one stack, guard page included; also its alignment.
pub(crate) const STACK_BYTES: usize = 256 << 10;
/// The top 64 bytes hold the list link (+0), the list the stack belongs to (+8) and what `signals` keeps there (+16 to +32, and +40 for
/// `signals::copies`); frames start below.
pub(crate) const STACK_TOP: usize = STACK_BYTES - 64;
/// Number of lists: threads on different stacks meet on a cache line rarely.
pub(crate) const SHARDS: usize = 16;

const PAGE: usize = 4096;

/// One list, alone on its cache line.
#[repr(C, align(64))]
pub(crate) struct Shard {
    head: AtomicU64,
}

/// All lists. `switch` picks one by a hash of the stack pointer.
pub(crate) static POOL: [Shard; SHARDS] = [const { Shard { head: AtomicU64::new(0) } }; SHARDS];

/// Stacks come from arenas of 64, so that an address can be recognised as one of theirs. Each word: an arena's base and, in the bits that its alignment
/// leaves free, how many of its stacks are in use. Filled from the front.
static ARENAS: [AtomicUsize; 256] = [const { AtomicUsize::new(0) }; 256];
const ARENA_STACKS: usize = 64;
const ARENA_BYTES: usize = ARENA_STACKS * STACK_BYTES;

/// The base of the engine stack that `address` lies in.
pub(crate) fn containing(address: usize) -> Option<usize> {
    let bases = ARENAS.iter().map(|arena| arena.load(Ordering::Acquire) & !(ARENA_BYTES - 1)).take_while(|&base| base != 0);
    bases.into_iter().any(|base| address.wrapping_sub(base) < ARENA_BYTES).then_some(address & !(STACK_BYTES - 1))
}

/// Makes one more stack for the list at `shard`; 0 when there is no memory.
pub(crate) extern "C" fn grow(shard: usize) -> usize {
    const READ_WRITE: usize = 3;
    for arena in &ARENAS {
        if let Some(base) = next_of(arena) {
            // SAFETY: this stack of the arena is nobody's yet. Its lowest page stays as the guard.
            unsafe {
                if raw::syscall3(Sysno::mprotect as usize, base + PAGE, STACK_BYTES - PAGE, READ_WRITE) != 0 {
                    return 0;
                }
                ((base + STACK_TOP + 8) as *mut usize).write(shard);
            }
            return base;
        }
    }
    0
}

/// The next unused stack of an arena, which is mapped if it is not there yet.
fn next_of(arena: &AtomicUsize) -> Option<usize> {
    let mut now = arena.load(Ordering::Acquire);
    if now == 0 {
        let base = map_arena()?;
        match arena.compare_exchange(0, base, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => now = base,
            Err(other) => {
                // SAFETY: our own mapping, which nobody has seen.
                unsafe { raw::syscall2(Sysno::munmap as usize, base, ARENA_BYTES) };
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
    // MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK
    const FLAGS: usize = 0x02 | 0x20 | 0x4000 | 0x20000;
    const NOTHING: usize = 0;
    // SAFETY: an anonymous mapping at an address of the kernel's choice; only parts of this very mapping are unmapped.
    unsafe {
        let at = raw::syscall6(Sysno::mmap as usize, 0, 2 * ARENA_BYTES, NOTHING, FLAGS, usize::MAX, 0);
        if at > usize::MAX - PAGE {
            return None;
        }
        let base = at.next_multiple_of(ARENA_BYTES);
        if base > at {
            raw::syscall2(Sysno::munmap as usize, at, base - at);
        }
        let tail = at + ARENA_BYTES - base;
        if tail > 0 {
            raw::syscall2(Sysno::munmap as usize, base + ARENA_BYTES, tail);
        }
        Some(base)
    }
}

/// How many stacks wait in the lists: for tests and for nothing else.
#[cfg(test)]
pub(crate) fn resting() -> usize {
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
