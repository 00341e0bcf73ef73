//! The pool: both classes' work lists and worker counts under their locks. The protocol is at the
//! top of [`super`].

use super::acct::{Account, Cancelled, WorkList};
use super::hash::HashKey;
use super::interrupt::InterruptGuard;
use super::policy::{CAN_WAKE, OVER_LIMIT, WakeAction, WorkerCounts};
use super::worker::Worker;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use uringlet_sys::lock::{LockWaits, Mutex, RawLock, RawMutex, TimedLock};
use uringlet_sys::sync::AtomicU32;
use uringlet_sys::{Errno, process, thread};

/// CPUs, a bit each, as sched_setaffinity(2) takes them.
pub type CpuMask = [u64; 16];

/// Something to be run on a thread that may sleep.
pub trait Work: Send + 'static {
    /// Runs it, to the end. It finds out itself whether it is still wanted. A part that may block
    /// for long runs inside [`InterruptGuard::run`], where a cancel interrupts it.
    fn run(self, interrupts: &InterruptGuard);
}

/// What a worker's thread runs.
pub(super) type WorkerMain<W, R> = fn(Arc<IoWq<W, R>>, Account, Arc<Worker>);

/// Whether the calling thread may start workers, which have its identity from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MayStart {
    /// It has the identity of the pool's workers.
    Yes,
    /// It has another one.
    No,
}

/// Work may come that only workers of a certain pool can do: one of them stays meanwhile.
#[derive(Clone, Debug)]
pub struct Hold(Arc<()>);

/// A class. Data that is written for each item is apart from data that is mostly read.
#[derive(Debug)]
pub(super) struct Acct<W, R> {
    queue: AcctQueue<W, R>,
    signal: Signal,
}

#[derive(Debug)]
#[repr(align(128))]
struct AcctQueue<W, R> {
    list: Mutex<WorkList<W>, R>,
    /// How many items of the list are ready; written under the class lock.
    ready: AtomicU32,
}

/// See the module.
#[derive(Debug)]
#[repr(align(128))]
struct Signal(AtomicU32);

impl<W, R: RawMutex> Acct<W, R> {
    /// Uses the list, under the class lock.
    pub(super) fn with<T>(&self, f: impl FnOnce(&mut WorkList<W>) -> T) -> T {
        let mut list = self.queue.list.lock();
        let result = f(&mut list);
        self.queue.ready.store(list.ready() as u32, Relaxed);
        result
    }

    /// Whether a worker could come, and none is on its way.
    fn can_wake(&self) -> bool {
        self.signal.0.load(Relaxed) & CAN_WAKE != 0
    }

    /// Whether there are more workers than the limit.
    pub(super) fn is_over_limit(&self) -> bool {
        self.signal.0.load(Relaxed) & OVER_LIMIT != 0
    }
}

/// What the pool lock guards.
#[derive(Debug)]
pub(super) struct PoolState {
    pub(super) counts: [WorkerCounts<Arc<Worker>>; 2],
    /// All workers whose thread runs.
    workers: Vec<Arc<Worker>>,
    /// CPUs that workers may use; `None` for any.
    affinity: Option<CpuMask>,
}

/// A worker pool. Its locks are of kind `R`.
#[derive(Debug)]
pub struct IoWq<W, R = RawLock> {
    accts: [Acct<W, R>; 2],
    pub(super) state: Mutex<PoolState, R>,
    next_work: AtomicU64,
    /// A thread of the program, for which one worker stays although it is idle; 0 for none.
    keeper: AtomicU32,
    /// One worker stays while there are more of it than this one.
    hold: Hold,
    /// The names of its threads, before the process' number.
    name: &'static str,
    worker_main: WorkerMain<W, R>,
}

impl<W: Work, R: RawMutex> IoWq<W, R> {
    /// A pool whose threads run `worker_main`.
    pub(super) fn with_thread(name: &'static str, max_workers: [u32; 2], worker_main: WorkerMain<W, R>) -> Arc<Self> {
        let counts = max_workers.map(WorkerCounts::new);
        let accts = [0, 1].map(|class: usize| Acct {
            queue: AcctQueue { list: Mutex::of(WorkList::default()), ready: AtomicU32::new(0) },
            signal: Signal(AtomicU32::new(counts[class].signal())),
        });
        Arc::new(Self {
            accts,
            state: Mutex::of(PoolState { counts, workers: Vec::new(), affinity: None }),
            next_work: AtomicU64::new(1),
            keeper: AtomicU32::new(0),
            hold: Hold(Arc::new(())),
            name,
            worker_main,
        })
    }

    pub(super) fn acct(&self, account: Account) -> &Acct<W, R> {
        &self.accts[account as usize]
    }

    /// A number for a piece of work, to cancel it by.
    pub fn number(&self) -> u64 {
        self.next_work.fetch_add(1, Relaxed)
    }

    /// Hands over a piece of work. Pieces with the same key run one at a time, in this order.
    ///
    /// # Errors
    /// No worker exists and none can be started: the work that will not run, in the order to run
    /// it. This piece is among it, and maybe others that waited for its key.
    pub fn enqueue(self: &Arc<Self>, account: Account, key: Option<HashKey>, number: u64, work: W) -> Result<(), Vec<W>> {
        let acct = self.acct(account);
        let needs_worker = acct.with(|list| list.push(number, key, work) && acct.can_wake());
        if !needs_worker || self.wake_or_start(account, MayStart::Yes).is_ok() {
            return Ok(());
        }
        self.drain_unrunnable(account)
    }

    /// As [`enqueue`](Self::enqueue), from a thread that may not start a worker, since that would
    /// have its identity. `false`: no worker comes for it before a thread that may has called
    /// [`start_missing`](Self::start_missing).
    pub fn enqueue_only(self: &Arc<Self>, account: Account, key: Option<HashKey>, number: u64, work: W) -> bool {
        let acct = self.acct(account);
        let needs_worker = acct.with(|list| list.push(number, key, work) && acct.can_wake());
        !needs_worker || self.wake_or_start(account, MayStart::No).is_ok()
    }

    /// Starts the workers for which [`enqueue_only`](Self::enqueue_only) has asked.
    ///
    /// # Errors
    /// As [`enqueue`](Self::enqueue).
    pub fn start_missing(self: &Arc<Self>) -> Result<(), Vec<W>> {
        let mut unrunnable = Vec::new();
        for account in Account::BOTH {
            if self.wake_if_ready(account, MayStart::Yes).is_err() {
                unrunnable.extend(self.drain_unrunnable(account).err().unwrap_or_default());
            }
        }
        if unrunnable.is_empty() { Ok(()) } else { Err(unrunnable) }
    }

    /// Whether [`start_missing`](Self::start_missing) would start one.
    pub fn lacks_worker(&self) -> bool {
        Account::BOTH.iter().any(|&account| self.acct(account).can_wake() && self.acct(account).queue.ready.load(Relaxed) > 0)
    }

    /// Takes the work that no worker will run: none exists, and none can be started.
    ///
    /// # Errors
    /// The work. `Ok`: another thread that failed as well has it, or a worker that was started
    /// since.
    fn drain_unrunnable(&self, account: Account) -> Result<(), Vec<W>> {
        let unrunnable = self.acct(account).with(WorkList::drain_unrunnable);
        if unrunnable.is_empty() { Ok(()) } else { Err(unrunnable) }
    }

    /// Makes sure that there is a worker, for work that will come from threads that may not start
    /// one. It stays as [`stay_for`](Self::stay_for) and [`hold`](Self::hold) say.
    pub fn keep_worker(self: &Arc<Self>, account: Account) {
        let mut state = self.state.lock();
        let counts = &mut state.counts[account as usize];
        if counts.workers == 0 {
            // Without one, the work waits until a thread enters that may start one.
            let _ = self.start(account, counts);
            self.acct(account).signal.0.store(counts.signal(), Relaxed);
        }
    }

    /// Whether a worker exists, or is being started.
    pub fn has_worker(&self, account: Account) -> bool {
        self.state.lock().counts[account as usize].workers > 0
    }

    /// The last worker stays while this thread lives; 0: no longer.
    pub fn stay_for(&self, keeper: u32) {
        self.keeper.store(keeper, Relaxed);
    }

    /// The last worker stays while this lives.
    pub fn hold(&self) -> Hold {
        self.hold.clone()
    }

    /// Whether there is a [`hold`](Self::hold).
    pub fn is_held(&self) -> bool {
        Arc::strong_count(&self.hold.0) > 1
    }

    /// Whether a worker stays although it is idle, if it is the last one.
    pub(super) fn is_kept(&self) -> bool {
        let keeper = self.keeper.load(Relaxed);
        self.is_held() || (keeper != 0 && thread::is_alive(keeper))
    }

    /// Takes the work of a class that has no worker left, of a pool that gets none any more.
    pub fn take_abandoned(&self) -> Vec<W> {
        let has_worker = self.state.lock().counts.each_ref().map(|counts| counts.workers > 0);
        let abandoned = Account::BOTH.into_iter().filter(|&account| !has_worker[account as usize]);
        abandoned.flat_map(|account| self.drain_unrunnable(account).err().unwrap_or_default()).collect()
    }

    /// Whether it has neither workers nor work.
    pub fn is_over(&self) -> bool {
        let state = self.state.lock();
        Account::BOTH
            .iter()
            .all(|&account| state.counts[account as usize].workers == 0 && self.acct(account).queue.ready.load(Relaxed) == 0)
    }

    /// If there is ready work and CAN_WAKE, wakes or starts a worker: for a thread that may have
    /// set CAN_WAKE. See the module.
    ///
    /// # Errors
    /// There is no worker, and none could be started.
    pub(super) fn wake_if_ready(self: &Arc<Self>, account: Account, may_start: MayStart) -> Result<(), Errno> {
        let acct = self.acct(account);
        if acct.can_wake() && acct.with(|list| list.ready() > 0) { self.wake_or_start(account, may_start) } else { Ok(()) }
    }

    /// There is ready work: wakes an idle worker or starts one, unless one is on its way or the
    /// limit is reached.
    ///
    /// # Errors
    /// There is no worker, and none could be started. `EPERM`: one is to be started, by another
    /// thread.
    fn wake_or_start(self: &Arc<Self>, account: Account, may_start: MayStart) -> Result<(), Errno> {
        let mut state = self.state.lock();
        // A worker may have taken it meanwhile. What was seen under the class lock, or something
        // later, is seen here.
        if self.acct(account).queue.ready.load(Relaxed) == 0 {
            return Ok(());
        }
        let counts = &mut state.counts[account as usize];
        let (result, woken) = match counts.wake_action(process::monotonic_ns) {
            WakeAction::Nothing => (Ok(()), None),
            WakeAction::Wake(worker) => {
                worker.mark_woken();
                (Ok(()), Some(worker))
            }
            WakeAction::Start if may_start == MayStart::No => (Err(Errno::EPERM), None),
            WakeAction::Start => (self.start(account, counts), None),
        };
        self.acct(account).signal.0.store(counts.signal(), Relaxed);
        drop(state);
        if let Some(worker) = woken {
            worker.wake();
        }
        result
    }

    /// Starts a worker. Under the pool lock, so that no thread relies on a worker that cannot be
    /// started.
    fn start(self: &Arc<Self>, account: Account, counts: &mut WorkerCounts<Arc<Worker>>) -> Result<(), Errno> {
        let (pool, worker) = (Arc::clone(self), Worker::new());
        let worker_main = self.worker_main;
        thread::install_interrupt_handler();
        let name = thread_name(self.name, process::pid());
        match thread::spawn(&name, move || worker_main(pool, account, worker)) {
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

    /// Changes a class' worker counts, under the pool lock. [`wake_if_ready`](Self::wake_if_ready)
    /// must follow if that may have set CAN_WAKE.
    pub(super) fn update_counts<T>(&self, account: Account, f: impl FnOnce(&mut WorkerCounts<Arc<Worker>>) -> T) -> T {
        let mut state = self.state.lock();
        let counts = &mut state.counts[account as usize];
        let result = f(counts);
        self.acct(account).signal.0.store(counts.signal(), Relaxed);
        result
    }

    /// A worker's thread runs.
    pub(super) fn add(&self, worker: &Arc<Worker>) {
        worker.bind_thread();
        let mut state = self.state.lock();
        if let Some(mask) = &state.affinity {
            thread::set_affinity(worker.tid(), mask);
        }
        state.workers.push(Arc::clone(worker));
    }

    /// A worker's thread ends.
    pub(super) fn remove(&self, worker: &Arc<Worker>) {
        self.state.lock().workers.retain(|other| !Arc::ptr_eq(other, worker));
    }

    /// Whether all waiting work of a class has, or may be given, a worker of its own.
    pub fn has_capacity(&self, account: Account) -> bool {
        let state = self.state.lock();
        state.counts[account as usize].capacity() >= self.acct(account).queue.ready.load(Relaxed)
    }

    /// Takes a piece of work back, or interrupts it. Not before its [`enqueue`](Self::enqueue) has
    /// returned.
    pub fn cancel(self: &Arc<Self>, number: u64, may_start: MayStart) -> Cancelled<W> {
        for account in Account::BOTH {
            let acct = self.acct(account);
            match acct.with(|list| list.cancel(number)) {
                Cancelled::Unknown => {}
                Cancelled::Queued(work) => {
                    // The next item of its key may be ready now. No error: where items wait, there
                    // is a worker.
                    let _ = self.wake_if_ready(account, may_start);
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

    /// `IORING_REGISTER_IOWQ_MAX_WORKERS`: sets limits, up to `RLIMIT_NPROC` (0 leaves one
    /// unchanged), and returns the old ones.
    pub fn set_max_workers(self: &Arc<Self>, new: [u32; 2], may_start: MayStart) -> [u32; 2] {
        let most = process::rlimit_nproc().min(u64::from(u32::MAX)) as u32;
        Account::BOTH.map(|account| {
            let new = new[account as usize].min(most);
            let (old, idle) = self.update_counts(account, |counts| {
                let old = counts.set_limit(new);
                // A worker beyond the limit exits when it is woken.
                let idle = if counts.signal() & OVER_LIMIT == 0 { Vec::new() } else { wake_all(counts) };
                (old, idle)
            });
            idle.iter().for_each(|worker| worker.wake());
            // No error: the submitter of the work has ensured that there is a worker.
            let _ = self.wake_if_ready(account, may_start);
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

    /// Lets workers exit once they have nothing to do: the pool's ring is gone, or the identity of
    /// its workers.
    pub fn shut_down(&self) {
        self.wake_all_idle(WorkerCounts::shut_down);
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

/// Marks all idle workers woken; the caller wakes them without the lock.
fn wake_all(counts: &mut WorkerCounts<Arc<Worker>>) -> Vec<Arc<Worker>> {
    let idle = counts.wake_all();
    idle.iter().for_each(|worker| worker.mark_woken());
    idle
}

impl<W> IoWq<W, TimedLock> {
    /// How its locks were waited for: the bounded class', the unbounded class', the pool's.
    pub fn waits(&self) -> [LockWaits; 3] {
        let [bound, unbound] = &self.accts;
        [bound.queue.list.raw().waits(), unbound.queue.list.raw().waits(), self.state.raw().waits()]
    }
}

/// `prefix` and a number: a thread's name, as ps shows it.
pub(crate) fn thread_name(prefix: &str, n: u32) -> alloc::string::String {
    alloc::format!("{prefix}{n}")
}
