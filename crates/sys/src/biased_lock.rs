//! What processes that share a ring tell each other: a lock that costs next to nothing while only one process uses the
//! ring, and a word to sleep on.
//!
//! A ring that exists at fork(2) has two owners of its queues from then on; most of the time only one of them ever uses
//! it. So its maker (the sole user, until told otherwise) only marks that it is inside, by plain stores:
//!
//! ```text
//!   maker                                   another process, at its first use
//!   busy = me                               users = REVOKING; barrier on all CPUs
//!   users still BIASED? inside.               wait until busy == 0 (or the maker is dead)
//!     else busy = 0, and lock `owner`       users = SHARED; lock `owner`
//! ```
//!
//! Either the barrier finds the maker's `busy` stored, and the other waits; or the maker loads `users` after it, and
//! sees REVOKING. This is Dekker's hand-shake with the fence on one side only (membarrier(2)).
//!
//! `owner` holds a process id. A process that died with it (killed inside) is found out by those who wait, and one of
//! them takes over: what it was writing is at worst one CQE that nobody will see.

#[cfg(all(test, loom))]
mod model;

use crate::futex::{shared_wait, shared_wake};
use crate::process;
use crate::sync::{AtomicU32, fence_heavy, fence_light};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

const BIASED: u32 = 0;
const REVOKING: u32 = 1;
const SHARED: u32 = 2;
/// Somebody sleeps on `owner`.
const CONTENDED: u32 = 1 << 31;
/// How long to sleep before looking whether the owner lives.
const OWNER_CHECK_INTERVAL_NS: u64 = 20_000_000;

/// See the module. All zero: the sole user is outside.
#[derive(Debug, Default)]
#[repr(C)]
pub struct BiasedLock {
    users: AtomicU32,
    busy: AtomicU32,
    owner: AtomicU32,
    event_seq: AtomicU32,
}

/// How a process is inside, and so how it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// It is not.
    No,
    /// As the ring's sole user.
    Biased,
    /// With the lock, among others.
    Shared,
}

impl BiasedLock {
    /// The ring's maker enters.
    #[inline]
    pub fn acquire(&self) -> Held {
        self.busy.store(process::pid(), Relaxed);
        // The processor may let the load pass the store: `revoke_bias` forbids it from afar.
        fence_light();
        if self.users.load(Acquire) == BIASED { Held::Biased } else { self.acquire_slow() }
    }

    #[cold]
    fn acquire_slow(&self) -> Held {
        self.busy.store(0, Release);
        self.acquire_shared();
        Held::Shared
    }

    /// Takes the lock: by a process that has [claimed](Self::revoke_bias) its part.
    pub fn acquire_shared(&self) {
        let me = process::pid();
        if self.owner.compare_exchange(0, me, Acquire, Relaxed).is_err() {
            self.acquire_shared_slow(me);
        }
    }

    fn acquire_shared_slow(&self, me: u32) {
        loop {
            // Whoever waited once says so when it has the lock: others may wait still.
            let Err(held) = self.owner.compare_exchange(0, me | CONTENDED, Acquire, Relaxed) else { return };
            if held & CONTENDED == 0 && self.owner.compare_exchange(held, held | CONTENDED, Relaxed, Relaxed).is_err() {
                continue;
            }
            let held = held | CONTENDED;
            let slept = shared_wait(address(&self.owner), held, process::monotonic_ns() + OWNER_CHECK_INTERVAL_NS);
            if slept.is_err()
                && !process::is_alive(held & !CONTENDED)
                && self.owner.compare_exchange(held, me | CONTENDED, Acquire, Relaxed).is_ok()
            {
                return;
            }
        }
    }

    /// Leaves.
    #[inline]
    pub fn release(&self, inside: Held) {
        match inside {
            Held::Biased => self.busy.store(0, Release),
            Held::Shared => self.unlock(),
            Held::No => {}
        }
    }

    #[cold]
    fn unlock(&self) {
        if self.owner.swap(0, Release) & CONTENDED != 0 {
            shared_wake(address(&self.owner), 1);
        }
    }

    /// A process that did not make the ring is about to use it: the maker is no longer the sole user.
    pub fn revoke_bias(&self) {
        if self.users.load(Acquire) == SHARED {
            return;
        }
        self.users.store(REVOKING, SeqCst);
        fence_heavy();
        let mut patience = 0;
        loop {
            let maker = self.busy.load(Acquire);
            if maker == 0 || (patience > 200 && !process::is_alive(maker)) {
                break;
            }
            patience = if patience > 200 { 0 } else { patience + 1 };
            process::sleep_ns(50_000);
        }
        self.users.store(SHARED, Release);
    }

    /// Whether more than one process uses the ring.
    #[inline]
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.users.load(Relaxed) != BIASED
    }

    /// Whoever is inside and has posted: those who sleep are to be woken, by the result, from outside.
    pub fn notify(&self) -> EventSeq {
        EventSeq { at: address(&self.event_seq), seen: self.event_seq.fetch_add(1, AcqRel).wrapping_add(1) }
    }

    /// Whoever is inside and wants to sleep outside until somebody tells something.
    #[must_use]
    pub fn event_seq(&self) -> EventSeq {
        EventSeq { at: address(&self.event_seq), seen: self.event_seq.load(Acquire) }
    }
}

/// What was told when a process was last inside. It outlives the ring: the address is only ever the kernel's to look at.
#[derive(Clone, Copy, Debug)]
pub struct EventSeq {
    at: usize,
    seen: u32,
}

impl EventSeq {
    /// Sleeps until something new is told.
    ///
    /// # Errors
    /// `EINTR`; `ETIMEDOUT`, `EAGAIN`.
    pub fn wait(self, deadline_ns: u64) -> Result<(), syscalls::Errno> {
        shared_wait(self.at, self.seen, deadline_ns)
    }

    /// Wakes everybody who waits for news.
    pub fn wake(self) {
        shared_wake(self.at, u32::MAX >> 1);
    }
}

fn address(word: &AtomicU32) -> usize {
    core::ptr::from_ref(word).addr()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_maker_is_alone_until_somebody_claims() {
        let c = BiasedLock::default();
        assert_eq!(c.acquire(), Held::Biased);
        c.release(Held::Biased);
        c.revoke_bias();
        assert!(c.is_shared());
        assert_eq!(c.acquire(), Held::Shared);
        c.release(Held::Shared);
        assert_eq!(c.owner.load(Relaxed), 0);
    }

    #[test]
    fn a_dead_owner_is_succeeded() {
        let c = BiasedLock::default();
        c.revoke_bias();
        // No process has this id: it is above any pid_max.
        c.owner.store(0x7fff_ffff, Relaxed);
        c.acquire_shared();
        assert_eq!(c.owner.load(Relaxed) & !CONTENDED, process::pid());
        c.release(Held::Shared);
        assert_eq!(c.owner.load(Relaxed), 0);
    }

    #[test]
    fn news_told_before_the_sleep_end_it_at_once() {
        let c = BiasedLock::default();
        let seen = c.event_seq();
        c.notify().wake();
        assert_eq!(seen.wait(u64::MAX), Err(syscalls::Errno::EAGAIN));
    }
}
