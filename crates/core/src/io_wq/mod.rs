//! io-wq: the threads that may sleep.
//!
//! Generic over its work: it knows no opcode. Two classes, bounded (work that ends by itself: files) and unbounded (work
//! that may wait for others: sockets, pipes), each with its own work list, limit and workers.
//!
//! ```text
//!   lock              guards                                             taken
//!   class lock        a class' work list, its hash keys (`hash`),        once to insert an item; once to be done with an
//!   (`acct::WorkList`)    what its workers are at                            item and take the next
//!   pool lock         both classes' free lists, worker counts and        to call, start, rest, go: not while everybody is
//!   (`PoolState`)          limits (`policy::WorkerCounts`), the CPU mask              busy, nor while somebody is on the way
//! ```
//!
//! Nobody takes one of them while holding another. Between them stands a word of each class, `signal`: written under the
//! pool lock, read without. Its bit CAN_WAKE says that somebody could come who is not on the way yet. So that ready work and a
//! free worker do not miss each other,
//!
//! ```text
//!   who adds ready work                         who sets CAN_WAKE: rests, goes, has found work, raises the limit
//!   class lock                                  pool lock: free list, counts, signal; unlock
//!     push                                      class lock
//!     signal has CAN_WAKE?                            is there ready work?
//!   unlock                                      unlock
//!         yes: `wake_or_start`: under the pool lock call an idle worker, or start one, or see that there is no need
//! ```
//!
//! Of the two under the class lock one is second. If it is the left one, it sees the CAN_WAKE that was set before the right
//! one took the lock; if it is the right one, it sees the work. Everybody who changes either counts ends with his half.
//!
//! One at a time is on its way: called or started, and not yet at work. Meanwhile nobody else is called: it sets CAN_WAKE
//! again when it has its item, and looks whether there is more (`found_work`). So a submitter pays for at most one wake-up,
//! also for a hundred items; items that wait for each other each get a worker while the limit lasts; and items that are
//! done in less time than a wake-up takes are done by the worker that is there.
//!
//! A worker goes that is idle for 5 s, beyond the limit, or has old credentials. Whoever goes rouses afterwards. If no
//! thread can be started then, and nobody is left, it comes back, or, if it must not do the work itself, waits. If
//! nobody is there to begin with, and no thread can be started, the submitter gets its items back.
//!
//! A cancel takes an item out of the list, or interrupts who is at it, in that item only (`interrupt`).
//!
//! Checked by `model` (loom, and shuttle) and, whole pools with hundreds of items, by `model_at_random` (shuttle).

mod acct;
mod hash;
mod interrupt;
#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, shuttle))]
mod model_at_random;
mod policy;
mod shared_pool;
mod worker;

pub use acct::{Account, Cancelled, KeyLease, WorkList, WorkerSlot};
pub use hash::HashKey;
pub use interrupt::InterruptGuard;
pub use policy::{CAN_WAKE, OVER_LIMIT, WakeAction, WorkerCounts};
pub(crate) use shared_pool::SharedPool;
pub use worker::{ExitReason, Worker};

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;
use uringlet_sys::lock::{LockWaits, Mutex, RawLock, RawMutex, TimedLock};
use uringlet_sys::sync::AtomicU32;
use uringlet_sys::{Errno, process, thread};

/// Between two attempts to start a thread that there must be.
const RETRY_NS: u64 = 10_000_000;

/// CPUs, a bit each, as sched_setaffinity(2) takes them.
pub type CpuMask = [u64; 16];

/// Something to be run on a thread that may sleep.
pub trait Work: Send + 'static {
    /// Runs it, to the end. It finds out itself whether it is still wanted. What may block for long it does inside
    /// [`InterruptGuard::run`], where a cancel interrupts it.
    fn run(self, interrupts: &InterruptGuard);
}

/// A class. What submitters and workers write for each item is apart from what they only read.
#[derive(Debug)]
struct Acct<W, R> {
    queue: AcctQueue<W, R>,
    signal: Signal,
}

#[derive(Debug)]
#[repr(align(128))]
struct AcctQueue<W, R> {
    list: Mutex<WorkList<W>, R>,
    /// How much ready work the list has; written under the class lock.
    ready: AtomicU32,
}

/// See the module.
#[derive(Debug)]
#[repr(align(128))]
struct Signal(AtomicU32);

impl<W, R: RawMutex> Acct<W, R> {
    /// Uses the list, under the class lock.
    fn with<T>(&self, f: impl FnOnce(&mut WorkList<W>) -> T) -> T {
        let mut list = self.queue.list.lock();
        let result = f(&mut list);
        self.queue.ready.store(list.ready() as u32, Relaxed);
        result
    }

    /// Whether somebody could come who is not on the way.
    fn can_wake(&self) -> bool {
        self.signal.0.load(Relaxed) & CAN_WAKE != 0
    }

    /// Whether there are more workers than there may be.
    fn is_over_limit(&self) -> bool {
        self.signal.0.load(Relaxed) & OVER_LIMIT != 0
    }
}

/// What the pool lock guards.
#[derive(Debug)]
struct PoolState {
    counts: [WorkerCounts<Arc<Worker>>; 2],
    /// Everybody whose thread runs.
    workers: Vec<Arc<Worker>>,
    /// CPUs that workers may use; `None` for any.
    affinity: Option<CpuMask>,
}

/// A worker pool. Its locks are of kind `R`.
#[derive(Debug)]
pub struct IoWq<W, R = RawLock> {
    accts: [Acct<W, R>; 2],
    state: Mutex<PoolState, R>,
    next_work: core::sync::atomic::AtomicU64,
    /// Changes when the process' credentials do: workers of an older generation end.
    credentials: AtomicU32,
    /// What its threads are called, before the process' number.
    name: &'static str,
}

impl<W: Work, R: RawMutex> IoWq<W, R> {
    /// A pool for a ring of `sq_entries`; no thread is started before there is work.
    pub fn new(sq_entries: u32) -> Arc<Self> {
        let bound = sq_entries.min(4 * process::cpu_count()).max(1);
        Self::with_limits([bound, most_workers()])
    }

    /// A pool with these limits of bounded and unbounded workers.
    pub fn with_limits(max_workers: [u32; 2]) -> Arc<Self> {
        Self::named("iou-wrk-", max_workers)
    }

    /// As [`with_limits`](Self::with_limits); `name` stands before the process' number in the names of its threads.
    pub fn named(name: &'static str, max_workers: [u32; 2]) -> Arc<Self> {
        let counts = max_workers.map(WorkerCounts::new);
        let accts = [0, 1].map(|class: usize| Acct {
            queue: AcctQueue { list: Mutex::of(WorkList::default()), ready: AtomicU32::new(0) },
            signal: Signal(AtomicU32::new(counts[class].signal())),
        });
        Arc::new(Self {
            accts,
            state: Mutex::of(PoolState { counts, workers: Vec::new(), affinity: None }),
            next_work: core::sync::atomic::AtomicU64::new(1),
            credentials: AtomicU32::new(0),
            name,
        })
    }

    fn acct(&self, account: Account) -> &Acct<W, R> {
        &self.accts[account as usize]
    }

    /// A number for a piece of work, to cancel it by.
    pub fn number(&self) -> u64 {
        self.next_work.fetch_add(1, Relaxed)
    }

    /// Hands over a piece of work. Those with the same key run one at a time, in this order.
    ///
    /// # Errors
    /// No thread exists and none can be started: what nobody will run, in the order to run it; this piece is among it,
    /// and maybe others that waited for its key.
    pub fn enqueue(self: &Arc<Self>, account: Account, key: Option<HashKey>, number: u64, work: W) -> Result<(), Vec<W>> {
        let acct = self.acct(account);
        let is_urgent = acct.with(|list| list.push(number, key, work) && acct.can_wake());
        if !is_urgent || self.wake_or_start(account).is_ok() {
            return Ok(());
        }
        let unrunnable = acct.with(WorkList::drain_unrunnable);
        // Empty: somebody else has it, who failed too, or a worker that was started since.
        if unrunnable.is_empty() { Ok(()) } else { Err(unrunnable) }
    }

    /// Summons somebody if there is ready work and somebody could come: for who may have set CAN_WAKE. See the module.
    ///
    /// # Errors
    /// There is no worker, and none could be started.
    fn wake_if_ready(self: &Arc<Self>, account: Account) -> Result<(), Errno> {
        let acct = self.acct(account);
        if acct.can_wake() && acct.with(|list| list.ready() > 0) { self.wake_or_start(account) } else { Ok(()) }
    }

    /// There is ready work: calls an idle worker or starts one, unless somebody is on the way or there may be no more.
    ///
    /// # Errors
    /// There is no worker, and none could be started.
    fn wake_or_start(self: &Arc<Self>, account: Account) -> Result<(), Errno> {
        let mut state = self.state.lock();
        // Somebody may have come for it meanwhile. What was seen under the class lock, or something later, is seen here.
        if self.acct(account).queue.ready.load(Relaxed) == 0 {
            return Ok(());
        }
        let counts = &mut state.counts[account as usize];
        let (result, called) = match counts.wake_action(process::monotonic_ns) {
            WakeAction::Nothing => (Ok(()), None),
            WakeAction::Wake(worker) => {
                worker.mark_woken();
                (Ok(()), Some(worker))
            }
            WakeAction::Start => (self.start(account, counts), None),
        };
        self.acct(account).signal.0.store(counts.signal(), Relaxed);
        drop(state);
        if let Some(worker) = called {
            worker.wake();
        }
        result
    }

    /// Starts a worker. Under the pool lock: nobody relies on one that cannot be started.
    fn start(self: &Arc<Self>, account: Account, counts: &mut WorkerCounts<Arc<Worker>>) -> Result<(), Errno> {
        let (pool, worker) = (Arc::clone(self), Worker::new());
        let credentials = self.credentials.load(Relaxed);
        thread::install_interrupt_handler();
        match thread::spawn(&name(self.name, process::pid()), move || worker::worker_main(pool, account, worker, credentials)) {
            Ok(()) => counts.started(),
            Err(errno) => {
                counts.start_failed(process::monotonic_ns());
                if counts.workers == 0 {
                    return Err(errno);
                }
            }
        }
        Ok(())
    }

    /// Changes a class' workers, under the pool lock. [`wake_if_ready`](Self::wake_if_ready) must follow if that may have set CAN_WAKE.
    fn update_counts<T>(&self, account: Account, f: impl FnOnce(&mut WorkerCounts<Arc<Worker>>) -> T) -> T {
        let mut state = self.state.lock();
        let counts = &mut state.counts[account as usize];
        let result = f(counts);
        self.acct(account).signal.0.store(counts.signal(), Relaxed);
        result
    }

    /// A worker's thread runs.
    fn add(&self, worker: &Arc<Worker>) {
        worker.bind_thread();
        let mut state = self.state.lock();
        if let Some(mask) = &state.affinity {
            thread::set_affinity(worker.tid(), mask);
        }
        state.workers.push(Arc::clone(worker));
    }

    /// A worker's thread ends.
    fn remove(&self, worker: &Arc<Worker>) {
        self.state.lock().workers.retain(|other| !Arc::ptr_eq(other, worker));
    }

    /// Whether all work of a class that waits has, or may be given, a worker of its own.
    pub fn has_capacity(&self, account: Account) -> bool {
        let state = self.state.lock();
        state.counts[account as usize].capacity() >= self.acct(account).queue.ready.load(Relaxed)
    }

    /// Takes a piece of work back, or interrupts it. Not before its [`enqueue`](Self::enqueue) has returned.
    pub fn cancel(self: &Arc<Self>, number: u64) -> Cancelled<W> {
        for account in Account::BOTH {
            let acct = self.acct(account);
            match acct.with(|list| list.cancel(number)) {
                Cancelled::Unknown => {}
                Cancelled::Queued(work) => {
                    // The next item of its key may be ready now. No error: where items wait, somebody is there.
                    let _ = self.wake_if_ready(account);
                    return Cancelled::Queued(work);
                }
                Cancelled::Running => return Cancelled::Running,
            }
        }
        Cancelled::Unknown
    }

    /// Takes a piece of bounded work without a key back that no worker has begun.
    pub fn withdraw(&self, number: u64) -> Option<W> {
        self.acct(Account::Bound).with(|list| list.withdraw(number))
    }

    /// `IORING_REGISTER_IOWQ_MAX_WORKERS`: sets limits, as far as `RLIMIT_NPROC` lets (0 leaves one alone), and returns
    /// the old ones.
    pub fn set_max_workers(self: &Arc<Self>, new: [u32; 2]) -> [u32; 2] {
        let most = process::rlimit_nproc().min(u64::from(u32::MAX)) as u32;
        Account::BOTH.map(|account| {
            let new = new[account as usize].min(most);
            let (old, idle) = self.update_counts(account, |counts| {
                let old = counts.set_limit(new);
                // Those beyond the limit go when they find that out.
                let idle = if counts.signal() & OVER_LIMIT == 0 { Vec::new() } else { wake_all(counts) };
                (old, idle)
            });
            idle.iter().for_each(|worker| worker.wake());
            // No error: who queued the work has seen to it that somebody is there.
            let _ = self.wake_if_ready(account);
            old
        })
    }

    /// CPUs that workers may use; `None` for any.
    pub fn set_affinity(&self, mask: Option<CpuMask>) {
        let mut state = self.state.lock();
        state.affinity = mask;
        for worker in &state.workers {
            thread::set_affinity(worker.tid(), &mask.unwrap_or([u64::MAX; 16]));
        }
    }

    /// Lets workers go once they have nothing to do: the pool's ring is gone.
    pub fn shut_down(&self) {
        self.wake_all_idle(WorkerCounts::shut_down);
    }

    /// The process' credentials changed: workers with the old ones go when they are done.
    pub fn renew_credentials(&self) {
        self.credentials.fetch_add(1, Relaxed);
        self.wake_all_idle(|_| ());
    }

    fn wake_all_idle(&self, change: impl Fn(&mut WorkerCounts<Arc<Worker>>)) {
        for account in Account::BOTH {
            let idle = self.update_counts(account, |counts| {
                change(counts);
                wake_all(counts)
            });
            idle.iter().for_each(|worker| worker.wake());
        }
    }
}

/// Calls everybody who is idle; to be woken without the lock.
fn wake_all(counts: &mut WorkerCounts<Arc<Worker>>) -> Vec<Arc<Worker>> {
    let idle = counts.wake_all();
    idle.iter().for_each(|worker| worker.mark_woken());
    idle
}

impl<W> IoWq<W, TimedLock> {
    /// How its locks were waited for: that of bounded work, that of unbounded work, the pool's.
    pub fn waits(&self) -> [LockWaits; 3] {
        let [bound, unbound] = &self.accts;
        [bound.queue.list.raw().waits(), unbound.queue.list.raw().waits(), self.state.raw().waits()]
    }
}

/// The most workers that a class may have.
fn most_workers() -> u32 {
    // Never 0, which would leave work to nobody.
    process::rlimit_nproc().clamp(1, u64::from(u32::MAX >> 1)) as u32
}

/// `prefix` and a number, as ps shows a thread.
pub(crate) fn name(prefix: &str, n: u32) -> alloc::string::String {
    alloc::format!("{prefix}{n}")
}
