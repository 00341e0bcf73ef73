//! A wait on futexes by a worker that must look as if its submitter waited.
//!
//! The program may rely on the submission: a wake after it finds a waiter. But the worker sleeps
//! only later, and no call reports when. So the worker waits on a private futex, its requeue word,
//! and the submitter moves it from there to the program's futex (`FUTEX_CMP_REQUEUE`, which returns
//! whether a waiter was moved):
//!
//! ```text
//!   submitter                                   worker
//!   compares the values: EAGAIN
//!   queues the request                     ->   STARTING to PARKED; sleeps on its requeue words
//!   waits while STARTING, with a time-out:
//!     STARTING to DIRECT: requeues nothing      it is DIRECT: compares and sleeps as futex_wait(2) does
//!   while PARKED: requeues, until one is moved
//!   closes the requeue words
//!   requeues again: one may have come back
//!   compares again: EAGAIN, takes it back       woken, interrupted, or refused: AWAKE
//!
//!   cancel, link timeout, close
//!   STARTING, DIRECT to CANCELLED               finds CANCELLED: does not sleep
//!   PARKED: interrupts, waits until AWAKE
//! ```
//!
//! The second comparison has the guarantee of the kernel's only one: a thread that changes a value
//! and wakes after it finds the sleeper; a change before it is seen.
//!
//! The kernel may wake a sleeper for no reason (a late wake-up of a lock that it has already got).
//! A futex wait then begins again where it first slept: on the requeue word, where no wake of the
//! program's finds it. So the words are closed once the sleeper was moved: their values change, and
//! a wait that begins again is refused. Between two waits a wake finds nobody, so the request ends
//! as if it were woken, which futex(2) allows. The same is done after a stray signal.
//!
//! ```text
//!   submitter                          worker
//!   requeues it to the futex           awake for no reason: leaves the futex
//!   A: closes the word                 begins again, if it comes before A, on the word
//!   requeues again: it is moved                      if it comes after A: refused
//! ```
//!
//! A cancel waits until the sleeper is awake, so that no later wake finds it. If no worker will
//! sleep any more, the submitter is woken, which may be waiting for one. A sleeper that was woken
//! although its request had ended forwards the wake to another waiter.
//!
//! All changes of STARTING and DIRECT are compare-and-swaps: either the submitter moves the
//! sleeper, or the worker sleeps directly, or it does not sleep. Only the worker ends PARKED, so
//! the submitter's requeueing ends: with success, or because there is no sleeper to move. A worker
//! in DIRECT is PARKED, too, while it sleeps: the submitter has stopped requeueing before.
//!
//! Checked by `driver/sleeper/model.rs` (loom).

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

/// A worker that exists or can be started begins to sleep within this time, ns.
const WORKER_TIMEOUT_NS: u64 = 1_000_000_000;
/// A worker that is about to sleep does so within so many requeue attempts, unless it lost its CPU.
const REQUEUE_YIELDS: u32 = 32;
/// Delay between later attempts, ns.
const REQUEUE_INTERVAL_NS: u64 = 1_000;

/// Whether no worker sleeps yet, but may.
const fn is_not_asleep(state: u32) -> bool {
    matches!(state, STARTING | DIRECT)
}

/// A futex, and the value that it must hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FutexWaitEntry {
    pub(crate) futex: Futex,
    pub(crate) value: u32,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct FutexWait {
    entries: Box<[FutexWaitEntry]>,
    /// `None` for a WAITV.
    mask: Option<u32>,
    state: AtomicU32,
    requeue_words: Box<[RequeueWord]>,
}

impl FutexWait {
    pub(super) fn new(entries: Vec<FutexWaitEntry>, mask: Option<u32>) -> Self {
        let requeue_words = entries.iter().map(|_| RequeueWord::default()).collect();
        Self { entries: entries.into_boxed_slice(), mask, state: AtomicU32::new(STARTING), requeue_words }
    }

    /// Compares the values.
    ///
    /// # Errors
    /// `EAGAIN` a futex holds another value; `EINVAL`, `EFAULT` it is no futex.
    pub(crate) fn compare(&self) -> Result<(), Errno> {
        if self.mask == Some(0) {
            return Err(Errno::EINVAL);
        }
        self.entries.iter().try_for_each(|a| a.futex.check())?;
        for a in &self.entries {
            if a.futex.value()? != a.value {
                // A value that can be read may be none of a futex.
                self.entries.iter().try_for_each(|a| a.futex.look_up())?;
                return Err(Errno::EAGAIN);
            }
        }
        Ok(())
    }

    /// Submitter: moves the worker onto the program's futexes. `false`: it sleeps directly, or is
    /// awake again. Unless `is_expected` no worker is waited for.
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
        self.requeue_words.iter().for_each(RequeueWord::close);
        for (requeue_word, a) in self.requeue_words.iter().zip(&self.entries) {
            requeue_word.requeue_one(a.futex)?;
        }
        Ok(true)
    }

    /// Worker: sleeps until it is woken. Returns the index of the futex. To be called once.
    ///
    /// # Errors
    /// `EINTR`: it is awake, and no wake has been seen.
    pub(crate) fn sleep(&self) -> Result<usize, Errno> {
        // Pairs with `requeue_sleeper` and `wait_until_awake`.
        let woken = match self.state.fetch_update(AcqRel, Acquire, |state| is_not_asleep(state).then_some(PARKED)) {
            Ok(STARTING) => {
                futex_wake(&self.state, 1);
                self.sleep_on_requeue_words()
            }
            Ok(_) => self.sleep_direct(),
            Err(_) => return Err(Errno::EINTR),
        };
        self.state.store(AWAKE, Release);
        futex_wake(&self.state, 1);
        woken
    }

    fn sleep_on_requeue_words(&self) -> Result<usize, Errno> {
        let woken = match (self.mask, &*self.requeue_words, &*self.entries) {
            (Some(mask), [requeue_word], [a]) => requeue_word.wait(a.futex, mask).map(|()| 0),
            (_, requeue_words, entries) => {
                let waiters: Vec<_> = requeue_words.iter().zip(entries).map(|(requeue_word, a)| requeue_word.waitv(a.futex)).collect();
                wait_any(&waiters)
            }
        };
        woken.map_err(|errno| if errno == Errno::EAGAIN { Errno::EINTR } else { errno })
    }

    /// A change of the value since the submission has been, or will be, followed by a wake.
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

    /// The worker will not sleep for this request.
    pub(crate) fn decline_sleep(&self) {
        if self.state.compare_exchange(STARTING, AWAKE, AcqRel, Acquire).is_ok() {
            futex_wake(&self.state, 1);
        }
    }

    /// Returns when the worker does not sleep on the program's futexes any more. The caller has
    /// interrupted it, or it never begins.
    pub(crate) fn wait_until_awake(&self) {
        // Pairs with `sleep`, and with `requeue_sleeper`, which waits for a worker that may never
        // come.
        if self.state.fetch_update(AcqRel, Acquire, |state| is_not_asleep(state).then_some(CANCELLED)).is_ok() {
            return futex_wake(&self.state, 1);
        }
        let deadline_ns = process::monotonic_ns() + WORKER_TIMEOUT_NS;
        // Pairs with `sleep`.
        while self.state.load(Acquire) == PARKED && futex_wait(&self.state, PARKED, deadline_ns) != Err(Errno::ETIMEDOUT) {}
    }

    /// Forwards a wake that came after the request had ended.
    pub(crate) fn forward_wake(&self, which: usize) {
        if let Some(a) = self.entries.get(which) {
            // No error: a futex that is gone has no waiters.
            let _ = a.futex.wake(1, self.mask.unwrap_or(u32::MAX));
        }
    }
}
