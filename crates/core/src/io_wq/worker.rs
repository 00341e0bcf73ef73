//! A worker: its life, its sleep, and how it is called and interrupted.

use super::acct::{Account, KeyLease, WorkerSlot};
use super::interrupt::InterruptGuard;
use super::policy::WorkerCounts;
use super::{IoWq, RETRY_NS, Work};
use alloc::sync::Arc;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use uringlet_sys::lock::{RawMutex, futex_wait, futex_wake};
use uringlet_sys::sync::AtomicU32;
use uringlet_sys::{Errno, process, thread};

/// An idle worker ends after this long.
pub(super) const IDLE_NS: u64 = 5_000_000_000;

/// What others know of a worker.
#[derive(Debug)]
pub struct Worker {
    /// Its thread; 0 before that runs.
    tid: AtomicU32,
    /// Its bed: 1 once it is called.
    is_woken: AtomicU32,
    interrupts: InterruptGuard,
}

impl Worker {
    /// One without a thread.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self { tid: AtomicU32::new(0), is_woken: AtomicU32::new(0), interrupts: InterruptGuard::new() })
    }

    /// On its thread: this is it.
    pub fn bind_thread(&self) {
        self.tid.store(process::tid(), Relaxed);
    }

    /// Its thread; 0 before that runs.
    #[must_use]
    pub fn tid(&self) -> u32 {
        self.tid.load(Relaxed)
    }

    /// Before it joins the idle ones: it is not called yet.
    pub fn prepare_park(&self) {
        self.is_woken.store(0, Relaxed);
    }

    /// Calls it: from now on it does not sleep. Under the pool lock; [`wake`](Self::wake) is for afterwards.
    pub fn mark_woken(&self) {
        // Pairs with `park`.
        self.is_woken.store(1, Release);
    }

    /// Wakes it if it sleeps.
    pub fn wake(&self) {
        futex_wake(&self.is_woken, 1);
    }

    /// Sleeps until called, at most until `deadline_ns`. `false`: it is late, and nobody has called.
    #[must_use]
    pub fn park(&self, deadline_ns: u64) -> bool {
        // Pairs with `mark_woken`.
        while self.is_woken.load(Acquire) == 0 {
            if futex_wait(&self.is_woken, 0, deadline_ns) == Err(Errno::ETIMEDOUT) {
                return self.is_woken.load(Acquire) == 1;
            }
        }
        true
    }

    /// Its next item begins.
    pub(super) fn begin(&self) {
        self.interrupts.begin();
    }

    /// The item is cancelled that it is at.
    pub(super) fn cancel(&self) {
        self.interrupts.cancel(self.tid());
    }

    /// When it may be interrupted: for its work.
    #[must_use]
    pub const fn interrupts(&self) -> &InterruptGuard {
        &self.interrupts
    }
}

/// ExitReason a worker goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// The process has other credentials by now.
    Stale,
    /// There are more workers than there may be.
    Excess,
    /// There was nothing to do for long, or the pool is shut down.
    Idle,
}

/// A worker at work.
struct WorkerLoop<W, R> {
    pool: Arc<IoWq<W, R>>,
    account: Account,
    me: Arc<Worker>,
    /// The credentials it was started with.
    credentials: u32,
    /// It was called or started, and has not found work yet.
    is_searching: bool,
}

/// A worker's life.
pub(super) fn worker_main<W: Work, R: RawMutex>(pool: Arc<IoWq<W, R>>, account: Account, me: Arc<Worker>, credentials: u32) {
    thread::accept_interrupts();
    pool.add(&me);
    let slot = pool.acct(account).with(|list| list.attach_worker(Arc::clone(&me)));
    WorkerLoop { pool, account, me, credentials, is_searching: true }.work(slot);
}

impl<W: Work, R: RawMutex> WorkerLoop<W, R> {
    fn work(mut self, slot: WorkerSlot) {
        let mut done = KeyLease::None;
        loop {
            let lease = core::mem::take(&mut done);
            // Looked at under the lock: who has changed the credentials since then queues its work later.
            let next = self.pool.acct(self.account).with(|list| match self.exit_reason() {
                Some(why) => {
                    list.finish(slot, lease);
                    Err(why)
                }
                None => Ok(list.next(slot, lease)),
            });
            let over = match next {
                Ok(Some((work, lease))) => {
                    self.found_work();
                    work.run(self.me.interrupts());
                    done = lease;
                    None
                }
                Ok(None) => self.park(),
                Err(why) => Some(why),
            };
            if over.is_some_and(|why| self.leave(why)) {
                break;
            }
        }
        self.pool.acct(self.account).with(|list| list.detach(slot));
        self.pool.remove(&self.me);
    }

    /// ExitReason it may take no more work.
    fn exit_reason(&self) -> Option<ExitReason> {
        if self.is_stale() {
            return Some(ExitReason::Stale);
        }
        self.pool.acct(self.account).is_over_limit().then_some(ExitReason::Excess)
    }

    fn is_stale(&self) -> bool {
        self.pool.credentials.load(Relaxed) != self.credentials
    }

    /// It has work. Whoever was not called because it was on its way is called now.
    fn found_work(&mut self) {
        if core::mem::take(&mut self.is_searching) {
            self.pool.update_counts(self.account, WorkerCounts::found_work);
            // No error: there is a worker, this one.
            let _ = self.pool.wake_if_ready(self.account);
        }
    }

    /// It has none, and sleeps until it is called; or why it goes.
    fn park(&mut self) -> Option<ExitReason> {
        let is_searching = core::mem::take(&mut self.is_searching);
        self.me.prepare_park();
        let may_rest = self.pool.update_counts(self.account, |counts| {
            if is_searching {
                counts.found_work();
            }
            counts.park(Arc::clone(&self.me))
        });
        if !may_rest {
            return Some(ExitReason::Idle);
        }
        // For work that came before it was known that this one is idle. It may be this one that is called.
        let _ = self.pool.wake_if_ready(self.account);
        let is_woken = self.me.park(process::monotonic_ns() + IDLE_NS)
            || !self.pool.update_counts(self.account, |counts| counts.unpark(|other| Arc::ptr_eq(other, &self.me)));
        self.is_searching = is_woken;
        if is_woken { None } else { Some(ExitReason::Idle) }
    }

    /// It goes. `false`: it stays, since there is work and nobody else, or it is not too many any more.
    fn leave(&mut self, why: ExitReason) -> bool {
        let is_searching = self.is_searching;
        let goes = self.pool.update_counts(self.account, |counts| {
            let goes = counts.try_exit(why);
            if goes && is_searching {
                counts.found_work();
            }
            goes
        });
        if !goes {
            return false;
        }
        self.is_searching = false;
        while self.pool.wake_if_ready(self.account).is_err() {
            if why != ExitReason::Stale && self.pool.update_counts(self.account, WorkerCounts::rejoin) {
                return false;
            }
            // Its credentials are old: it may wait for another worker, but not do the work.
            process::sleep_ns(RETRY_NS);
        }
        true
    }
}
