//! A lock between processes that share a ring. It costs next to nothing while only one process uses
//! the ring. Beside it, a counter of events to sleep on.
//!
//! After fork(2) a ring's queues have two owners; most of the time only one of them uses the ring.
//! So the lock is biased to the ring's maker, which only marks that it holds the lock, by plain
//! stores, until another process revokes the bias:
//!
//! ```text
//!   maker                                   another process, at its first use
//!     busy = me                               users = REVOKING; barrier on all CPUs
//!     users still BIASED? acquired.           wait until busy == 0 (or the maker is dead)
//!       else busy = 0, and lock `owner`       users = SHARED; lock `owner`
//! ```
//!
//! Either the barrier makes the maker's `busy` visible, and the other process waits; or the maker
//! loads `users` after the barrier, and sees REVOKING. This is Dekker's algorithm with the fence on
//! one side only (membarrier(2)).
//!
//! `owner` holds a process id. Waiters detect an owner that died (killed while it held the lock),
//! and one of them takes the lock over: what the owner was writing is at worst one CQE that is
//! never published.

#[cfg(all(test, loom))]
mod model;

use crate::futex::{shared_wait, shared_wake};
use crate::process;
use crate::sync::{AtomicU32, fence_heavy, fence_light};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

const BIASED: u32 = 0;
const REVOKING: u32 = 1;
const SHARED: u32 = 2;
/// Bit of `owner`: a process may sleep on it.
const CONTENDED: u32 = 1 << 31;
/// How long to sleep before checking that the owner is alive, ns.
const OWNER_CHECK_INTERVAL_NS: u64 = 20_000_000;
/// How long to sleep between two looks at `busy`, ns.
const BUSY_POLL_NS: u64 = 50_000;
/// Looks at `busy` before checking that the maker is alive.
const POLLS_BEFORE_CHECK: u32 = 200;

/// See the module. All zero: biased to the maker, and free.
#[derive(Debug, Default)]
#[repr(C)]
pub struct BiasedLock {
    users: AtomicU32,
    busy: AtomicU32,
    owner: AtomicU32,
    event_seq: AtomicU32,
}

/// How a process holds the lock, and so how it releases it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// Not at all.
    No,
    /// As the maker, to which the lock is biased.
    Biased,
    /// As one of several users.
    Shared,
}

impl BiasedLock {
    /// Acquires the lock in the ring's maker, whose process id is `me`.
    #[inline]
    pub fn acquire(&self, me: u32) -> Held {
        self.busy.store(me, Relaxed);
        // The processor may execute the load before the store; `fence_heavy` in `revoke_bias`
        // prevents it.
        fence_light();
        if self.users.load(Acquire) == BIASED { Held::Biased } else { self.acquire_slow() }
    }

    #[cold]
    fn acquire_slow(&self) -> Held {
        self.busy.store(0, Release);
        self.acquire_shared();
        Held::Shared
    }

    /// Acquires the lock in a process that has [revoked the bias](Self::revoke_bias).
    pub fn acquire_shared(&self) {
        let me = process::pid();
        if self.owner.compare_exchange(0, me, Acquire, Relaxed).is_err() {
            self.acquire_shared_slow(me);
        }
    }

    fn acquire_shared_slow(&self, me: u32) {
        loop {
            // A process that has waited keeps CONTENDED set: others may still wait.
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

    /// Releases the lock.
    #[inline]
    pub fn release(&self, held: Held) {
        match held {
            Held::Biased => self.busy.store(0, Release),
            Held::Shared => self.release_shared(),
            Held::No => {}
        }
    }

    #[cold]
    fn release_shared(&self) {
        if self.owner.swap(0, Release) & CONTENDED != 0 {
            shared_wake(address(&self.owner), 1);
        }
    }

    /// Ends the maker's privilege: a process that did not make the ring is about to use it.
    pub fn revoke_bias(&self) {
        if self.users.load(Acquire) == SHARED {
            return;
        }
        self.users.store(REVOKING, SeqCst);
        fence_heavy();
        let mut polls = 0;
        loop {
            let maker = self.busy.load(Acquire);
            if maker == 0 || (polls > POLLS_BEFORE_CHECK && !process::is_alive(maker)) {
                break;
            }
            polls = if polls > POLLS_BEFORE_CHECK { 0 } else { polls + 1 };
            process::sleep_ns(BUSY_POLL_NS);
        }
        self.users.store(SHARED, Release);
    }

    /// Whether more than one process uses the ring.
    #[inline]
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.users.load(Relaxed) != BIASED
    }

    /// Counts an event. The caller holds the lock, and wakes the waiters by the result once it has
    /// released it.
    pub fn notify(&self) -> EventSeq {
        EventSeq { address: address(&self.event_seq), seen: self.event_seq.fetch_add(1, AcqRel).wrapping_add(1) }
    }

    /// The number of events so far. The caller holds the lock, and waits for the next event once it
    /// has released it.
    #[must_use]
    pub fn event_seq(&self) -> EventSeq {
        EventSeq { address: address(&self.event_seq), seen: self.event_seq.load(Acquire) }
    }
}

/// Number of events when a process last held the lock. It may outlive the ring: only the kernel
/// uses the address.
#[derive(Clone, Copy, Debug)]
pub struct EventSeq {
    address: usize,
    seen: u32,
}

impl EventSeq {
    /// Sleeps until the next event, at most until `deadline_ns` (`CLOCK_MONOTONIC`).
    ///
    /// # Errors
    /// `EAGAIN` there was one already; `ETIMEDOUT`, `EINTR`; `EFAULT` the ring is gone.
    pub fn wait(self, deadline_ns: u64) -> Result<(), syscalls::Errno> {
        shared_wait(self.address, self.seen, deadline_ns)
    }

    /// Unblocks all waiters.
    pub fn wake(self) {
        shared_wake(self.address, u32::MAX >> 1);
    }
}

fn address(word: &AtomicU32) -> usize {
    core::ptr::from_ref(word).addr()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_lock_is_biased_until_the_bias_is_revoked() {
        let lock = BiasedLock::default();
        assert_eq!(lock.acquire(process::pid()), Held::Biased);
        lock.release(Held::Biased);
        lock.revoke_bias();
        assert!(lock.is_shared());
        assert_eq!(lock.acquire(process::pid()), Held::Shared);
        lock.release(Held::Shared);
        assert_eq!(lock.owner.load(Relaxed), 0);
    }

    #[test]
    fn a_dead_owners_lock_is_taken_over() {
        let lock = BiasedLock::default();
        lock.revoke_bias();
        // No process has this id: it is above any pid_max.
        lock.owner.store(0x7fff_ffff, Relaxed);
        lock.acquire_shared();
        assert_eq!(lock.owner.load(Relaxed) & !CONTENDED, process::pid());
        lock.release(Held::Shared);
        assert_eq!(lock.owner.load(Relaxed), 0);
    }

    #[test]
    fn an_event_before_the_wait_ends_it_at_once() {
        let lock = BiasedLock::default();
        let seen = lock.event_seq();
        lock.notify().wake();
        assert_eq!(seen.wait(u64::MAX), Err(syscalls::Errno::EAGAIN));
    }
}
