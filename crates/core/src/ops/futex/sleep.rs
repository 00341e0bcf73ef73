//! A wait on futexes, which a worker sleeps through as if its submitter did.
//!
//! Who submits a wait may rely on it: a wake that comes after the submission finds somebody to wake. But the worker that is to
//! sleep comes later, and no call says when it sleeps. So it lies down on a word of ours, its requeue_word, and the submitter moves it
//! from there to the program's futex (`FUTEX_CMP_REQUEUE`), which says whether somebody was moved:
//!
//! ```text
//!   submitter                                   worker
//!   compares the values: EAGAIN
//!   queues the request                     ->   COMING to LYING; sleeps on the requeue_words
//!   waits while COMING, not for ever:
//!     COMING to ALONE: leaves it to itself      it is ALONE: compares and sleeps as futex_wait(2) does
//!   while LYING: moves, until it was moved
//!   compares again: EAGAIN, takes it back       woken, or interrupted: GONE
//!
//!   who ends the request
//!   COMING, ALONE to ENDED: nobody sleeps      finds it ENDED: does not lie down
//!   LYING: interrupts, waits until it is GONE
//! ```
//!
//! The second comparison is under the same rule as the kernel's only one: who changes a value and wakes after it finds the
//! sleeper, who changed it before is seen. Who ends the request waits until the sleeper is up, so that no later wake finds it; and
//! where no worker lies down any more, the submitter is told, which may be waiting for it. What the sleeper was woken for before
//! that, although its request had ended otherwise, it passes on: it wakes another one.
//!
//! All changes of COMING and ALONE are compare-and-swaps, so that either the submitter moves the sleeper, or the worker is on its
//! own, or it does not sleep. Only the worker ends LYING, so the submitter's moving ends: with success, or because there is nobody
//! to be moved. Who is ALONE is LYING, too, while it sleeps: the submitter looked its last before.
//!
//! Checked by `submit/wait/model.rs` (loom).

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use uringlet_sys::lock::{futex_wait, futex_wake};
use uringlet_sys::sync::AtomicU32;
use uringlet_sys::user_futex::{Futex, RequeueWord, wait_any};
use uringlet_sys::{Errno, process};

const STARTING: u32 = 0;
const PARKED: u32 = 1;
const DIRECT: u32 = 2;
const AWAKE: u32 = 3;
const CANCELLED: u32 = 4;

/// A worker that may be started, or is called, comes sooner than this, ns.
const WORKER_TIMEOUT_NS: u64 = 1_000_000_000;
/// A worker that is about to sleep does so within so many attempts to move it, unless it lost its CPU.
const REQUEUE_YIELDS: u32 = 32;
/// Between two later attempts, ns.
const REQUEUE_INTERVAL_NS: u64 = 1_000;

/// Whether no worker has begun to sleep, but may.
const fn is_not_asleep(state: u32) -> bool {
    matches!(state, STARTING | DIRECT)
}

/// A futex, and what it has to hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FutexWaitEntry {
    pub(crate) futex: Futex,
    pub(crate) value: u32,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct FutexWait {
    entries: Box<[FutexWaitEntry]>,
    /// `None`: of a WAITV.
    mask: Option<u32>,
    state: AtomicU32,
    requeue_words: Box<[RequeueWord]>,
}

impl FutexWait {
    pub(super) fn new(entries: Vec<FutexWaitEntry>, mask: Option<u32>) -> Self {
        let requeue_words = entries.iter().map(|_| RequeueWord::default()).collect();
        Self { entries: entries.into_boxed_slice(), mask, state: AtomicU32::new(STARTING), requeue_words }
    }

    /// Whether there is something to sleep for.
    ///
    /// # Errors
    /// `EAGAIN` a futex holds another value; `EINVAL`, `EFAULT` it is none.
    pub(crate) fn compare(&self) -> Result<(), Errno> {
        if self.mask == Some(0) {
            return Err(Errno::EINVAL);
        }
        self.entries.iter().try_for_each(|a| a.futex.check())?;
        for a in &self.entries {
            if a.futex.value()? != a.value {
                return Err(Errno::EAGAIN);
            }
        }
        Ok(())
    }

    /// On the submitter's side: gets the worker onto the program's futexes. `false`: it is on its own, or up again. Where no worker
    /// `is_expected` none is waited for.
    ///
    /// # Errors
    /// `EFAULT` a futex is gone.
    pub(crate) fn requeue_sleeper(&self, is_expected: bool) -> Result<bool, Errno> {
        let deadline_ns = if is_expected { process::monotonic_ns() + WORKER_TIMEOUT_NS } else { 0 };
        // Pairs with `sleep`.
        while self.state.load(Acquire) == STARTING {
            let is_late = futex_wait(&self.state, STARTING, deadline_ns) == Err(Errno::ETIMEDOUT);
            if is_late && self.state.compare_exchange(STARTING, DIRECT, AcqRel, Acquire).is_ok() {
                return Ok(false);
            }
        }
        let mut tries = 0;
        for (requeue_word, a) in self.requeue_words.iter().zip(&self.entries) {
            while !requeue_word.requeue_one(a.futex)? {
                if self.state.load(Acquire) != PARKED {
                    return Ok(false);
                }
                if tries > REQUEUE_YIELDS {
                    process::sleep_ns(REQUEUE_INTERVAL_NS);
                } else {
                    tries += 1;
                    process::yield_now();
                }
            }
        }
        Ok(true)
    }

    /// On the worker's: sleeps until it is woken; by which of the futexes.
    ///
    /// # Errors
    /// `EINTR`: it may be called again.
    pub(crate) fn sleep(&self) -> Result<usize, Errno> {
        // Pairs with `put_to_sleep` and `await_end`.
        let woken = match self.state.fetch_update(AcqRel, Acquire, |state| is_not_asleep(state).then_some(PARKED)) {
            Ok(STARTING) => {
                futex_wake(&self.state, 1);
                self.sleep_on_requeue_words()
            }
            Ok(_) => self.sleep_direct(),
            Err(CANCELLED) => return Err(Errno::EINTR),
            // Nobody's signal, or another request's, got it up.
            Err(_) => return self.sleep_direct(),
        };
        self.state.store(AWAKE, Release);
        futex_wake(&self.state, 1);
        woken
    }

    fn sleep_on_requeue_words(&self) -> Result<usize, Errno> {
        match (self.mask, &*self.requeue_words, &*self.entries) {
            (Some(mask), [requeue_word], [a]) => requeue_word.wait(a.futex, mask).map(|()| 0),
            (_, requeue_words, entries) => {
                let waiters: Vec<_> = requeue_words.iter().zip(entries).map(|(requeue_word, a)| requeue_word.waitv(a.futex)).collect();
                wait_any(&waiters)
            }
        }
    }

    /// What changed since the submission has, or should have, been followed by a wake.
    fn sleep_direct(&self) -> Result<usize, Errno> {
        let woken = match (self.mask, &*self.entries) {
            (Some(mask), [a]) => a.futex.wait(a.value, mask).map(|()| 0),
            (_, entries) => {
                let waiters: Vec<_> = entries.iter().map(|a| a.futex.waitv(a.value)).collect();
                wait_any(&waiters)
            }
        };
        let changed = || self.entries.iter().position(|a| a.futex.value() != Ok(a.value)).unwrap_or(0);
        if woken == Err(Errno::EAGAIN) { Ok(changed()) } else { woken }
    }

    /// The worker does not sleep for this request.
    pub(crate) fn decline_sleep(&self) {
        if self.state.compare_exchange(STARTING, AWAKE, AcqRel, Acquire).is_ok() {
            futex_wake(&self.state, 1);
        }
    }

    /// The worker is being interrupted, or does not begin: returns when it does not sleep on the program's futexes any more.
    pub(crate) fn wait_until_awake(&self) {
        // Pairs with `sleep`, and with `put_to_sleep`, which waits for a worker that may never come.
        if self.state.fetch_update(AcqRel, Acquire, |state| is_not_asleep(state).then_some(CANCELLED)).is_ok() {
            return futex_wake(&self.state, 1);
        }
        let deadline_ns = process::monotonic_ns() + WORKER_TIMEOUT_NS;
        // Pairs with `sleep`.
        while self.state.load(Acquire) == PARKED && futex_wait(&self.state, PARKED, deadline_ns) != Err(Errno::ETIMEDOUT) {}
    }

    /// The request had ended when it was woken: the wake is another's.
    pub(crate) fn forward_wake(&self, which: usize) {
        if let Some(a) = self.entries.get(which) {
            // No error: a futex that is gone has nobody to wake.
            let _ = a.futex.wake(1, self.mask.unwrap_or(u32::MAX));
        }
    }
}
