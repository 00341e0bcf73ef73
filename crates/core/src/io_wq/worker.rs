//! A worker: its life, its sleep, and how it is called and interrupted.

use super::acct::{Account, Seat, Turn};
use super::exposure::Exposure;
use super::policy::Side;
use super::{IoWq, RETRY_NS, Work};
use alloc::sync::Arc;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use uringlet_sys::lock::{Raw, futex_wait, futex_wake};
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
    is_called: AtomicU32,
    exposure: Exposure,
}

impl Worker {
    /// One without a thread.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self { tid: AtomicU32::new(0), is_called: AtomicU32::new(0), exposure: Exposure::new() })
    }

    /// On its thread: this is it.
    pub fn enlist(&self) {
        self.tid.store(process::tid(), Relaxed);
    }

    /// Its thread; 0 before that runs.
    #[must_use]
    pub fn tid(&self) -> u32 {
        self.tid.load(Relaxed)
    }

    /// Before it joins the idle ones: it is not called yet.
    pub fn lie_down(&self) {
        self.is_called.store(0, Relaxed);
    }

    /// Calls it: from now on it does not sleep. Under the pool lock; [`wake`](Self::wake) is for afterwards.
    pub fn call(&self) {
        // Pairs with `sleep`.
        self.is_called.store(1, Release);
    }

    /// Wakes it if it sleeps.
    pub fn wake(&self) {
        futex_wake(&self.is_called, 1);
    }

    /// Sleeps until called, at most until `deadline_ns`. `false`: it is late, and nobody has called.
    #[must_use]
    pub fn sleep(&self, deadline_ns: u64) -> bool {
        // Pairs with `call`.
        while self.is_called.load(Acquire) == 0 {
            if futex_wait(&self.is_called, 0, deadline_ns) == Err(Errno::ETIMEDOUT) {
                return self.is_called.load(Acquire) == 1;
            }
        }
        true
    }

    /// Its next item begins.
    pub(super) fn begin(&self) {
        self.exposure.begin();
    }

    /// The item is cancelled that it is at.
    pub(super) fn cancel(&self) {
        self.exposure.cancel(self.tid());
    }

    /// When it may be interrupted: for its work.
    #[must_use]
    pub const fn exposure(&self) -> &Exposure {
        &self.exposure
    }
}

/// Why a worker goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The process has other credentials by now.
    Stale,
    /// There are more workers than there may be.
    Excess,
    /// There was nothing to do for long, or the pool is shut down.
    Idle,
}

/// A worker at work.
struct Shift<W, R> {
    pool: Arc<IoWq<W, R>>,
    account: Account,
    me: Arc<Worker>,
    /// The credentials it was started with.
    credentials: u32,
    /// It was called or started, and has not found work yet.
    is_searching: bool,
}

/// A worker's life.
pub(super) fn live<W: Work, R: Raw>(pool: Arc<IoWq<W, R>>, account: Account, me: Arc<Worker>, credentials: u32) {
    thread::accept_interrupts();
    pool.enlist(&me);
    let seat = pool.acct(account).with(|list| list.sit_down(Arc::clone(&me)));
    Shift { pool, account, me, credentials, is_searching: true }.work(seat);
}

impl<W: Work, R: Raw> Shift<W, R> {
    fn work(mut self, seat: Seat) {
        let mut done = Turn::Free;
        loop {
            let turn = core::mem::take(&mut done);
            // Looked at under the lock: who has changed the credentials since then queues its work later.
            let next = self.pool.acct(self.account).with(|list| match self.why_go() {
                Some(why) => {
                    list.finish(seat, turn);
                    Err(why)
                }
                None => Ok(list.next(seat, turn)),
            });
            let over = match next {
                Ok(Some((work, turn))) => {
                    self.found();
                    work.run(self.me.exposure());
                    done = turn;
                    None
                }
                Ok(None) => self.rest(),
                Err(why) => Some(why),
            };
            if over.is_some_and(|why| self.leave(why)) {
                break;
            }
        }
        self.pool.acct(self.account).with(|list| list.get_up(seat));
        self.pool.dismiss(&self.me);
    }

    /// Why it may take no more work.
    fn why_go(&self) -> Option<Why> {
        if self.is_stale() {
            return Some(Why::Stale);
        }
        self.pool.acct(self.account).has_excess().then_some(Why::Excess)
    }

    fn is_stale(&self) -> bool {
        self.pool.credentials.load(Relaxed) != self.credentials
    }

    /// It has work. Whoever was not called because it was on its way is called now.
    fn found(&mut self) {
        if core::mem::take(&mut self.is_searching) {
            self.pool.change(self.account, Side::found);
            // No error: there is a worker, this one.
            let _ = self.pool.rouse(self.account);
        }
    }

    /// It has none, and sleeps until it is called; or why it goes.
    fn rest(&mut self) -> Option<Why> {
        let is_searching = core::mem::take(&mut self.is_searching);
        self.me.lie_down();
        let may_rest = self.pool.change(self.account, |side| {
            if is_searching {
                side.found();
            }
            side.rest(Arc::clone(&self.me))
        });
        if !may_rest {
            return Some(Why::Idle);
        }
        // For work that came before it was known that this one is idle. It may be this one that is called.
        let _ = self.pool.rouse(self.account);
        let is_called = self.me.sleep(process::monotonic_ns() + IDLE_NS)
            || !self.pool.change(self.account, |side| side.stop_resting(|other| Arc::ptr_eq(other, &self.me)));
        self.is_searching = is_called;
        if is_called { None } else { Some(Why::Idle) }
    }

    /// It goes. `false`: it stays, since there is work and nobody else, or it is not too many any more.
    fn leave(&mut self, why: Why) -> bool {
        let is_searching = self.is_searching;
        let goes = self.pool.change(self.account, |side| {
            let goes = side.let_go(why);
            if goes && is_searching {
                side.found();
            }
            goes
        });
        if !goes {
            return false;
        }
        self.is_searching = false;
        while self.pool.rouse(self.account).is_err() {
            if why != Why::Stale && self.pool.change(self.account, Side::come_back) {
                return false;
            }
            // Its credentials are old: it may wait for another worker, but not do the work.
            process::sleep_ns(RETRY_NS);
        }
        true
    }
}
