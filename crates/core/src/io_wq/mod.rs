//! io-wq: the threads that may sleep.
//!
//! Generic over its work: it knows no opcode. Two classes, bounded (work that ends by itself: files) and unbounded (work
//! that may wait for others: sockets, pipes), each with its own queue, limit and lock.
//!
//! Protocol of a class, all under its lock but the sleeping:
//!
//! ```text
//!   enqueue                                 worker
//!   push work                               pop work, or:
//!   idle > 0: ring the bell                 idle += 1; sleep on the bell while it has not changed
//!   idle < queued, workers < max:           idle -= 1; pop again; after 5 s without work: workers -= 1, end
//!     start one, too                        credentials changed: start another if work is queued; workers -= 1, end
//! ```
//!
//! The bell is changed under the lock and its value is read under the lock before sleeping, so a push between unlock
//! and sleep changes the value and the sleep returns at once: no wake-up is lost. A worker counts as idle until it has
//! the lock again, so each piece in the queue may claim one idle worker, and no more. Who ends leaves no work behind
//! that only others, busy for an unknown time, could take: they may be waiting for it.
//!
//! Checked by `model`.

#[cfg(all(test, loom))]
mod model;

use crate::submit::Punted;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;
use uringlet_sys::lock::{Mutex, MutexGuard, futex_wait, futex_wake};
use uringlet_sys::sync::AtomicU32;
use uringlet_sys::{Errno, process, thread};

/// An idle worker ends after this long.
const IDLE_NS: u64 = 5_000_000_000;
/// Between two attempts to start a thread that there must be.
const RETRY_NS: u64 = 10_000_000;

/// Something to be run on a thread that may sleep.
pub(crate) trait Work: Send + 'static {
    /// Runs it, to the end. It finds out itself whether it is still wanted.
    fn run(self);
}

/// The class of a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Account {
    /// Ends by itself: regular files, block devices.
    Bound = 0,
    /// May wait for others: sockets, pipes, devices.
    Unbound = 1,
}

/// What became of a cancelled piece of work.
#[derive(Debug)]
pub(crate) enum Cancelled<W> {
    /// It had not begun: here it is.
    Queued(W),
    /// A worker is at it; its blocking call was interrupted.
    Running,
    /// It is not here (any more).
    Unknown,
}

#[derive(Debug)]
struct Queue<W> {
    work: VecDeque<(u64, W)>,
    /// Work number and thread id of what runs.
    running: Vec<(u64, u32)>,
    workers: u32,
    idle: u32,
    max_workers: u32,
}

#[derive(Debug)]
struct Acct<W> {
    queue: Mutex<Queue<W>>,
    bell: AtomicU32,
}

/// A worker pool.
#[derive(Debug)]
pub(crate) struct IoWq<W> {
    accts: [Acct<W>; 2],
    next_work: core::sync::atomic::AtomicU64,
    affinity: Mutex<Option<[u64; 16]>>,
    /// Changes when the process' credentials do: workers of an older generation end.
    credentials: AtomicU32,
}

impl<W: Work> IoWq<W> {
    /// A pool for a ring of `sq_entries`; no thread is started before there is work.
    pub(crate) fn new(sq_entries: u32) -> Arc<Self> {
        let bound = sq_entries.min(4 * process::cpu_count()).max(1);
        let unbound = process::rlimit_nproc().clamp(1, u64::from(u32::MAX >> 1)) as u32;
        Self::with_limits([bound, unbound])
    }

    fn with_limits(max_workers: [u32; 2]) -> Arc<Self> {
        Arc::new(Self {
            accts: max_workers.map(|max_workers| Acct {
                queue: Mutex::new(Queue { work: VecDeque::new(), running: Vec::new(), workers: 0, idle: 0, max_workers }),
                bell: AtomicU32::new(0),
            }),
            next_work: core::sync::atomic::AtomicU64::new(1),
            affinity: Mutex::new(None),
            credentials: AtomicU32::new(0),
        })
    }

    /// A number for a piece of work, to cancel it by.
    pub(crate) fn number(&self) -> u64 {
        self.next_work.fetch_add(1, Relaxed)
    }

    /// Hands over a piece of work.
    ///
    /// # Errors
    /// The work comes back if no thread exists and none can be started.
    pub(crate) fn enqueue(self: &Arc<Self>, account: Account, number: u64, work: W) -> Result<(), W> {
        let acct = &self.accts[account as usize];
        let mut queue = acct.queue.lock();
        queue.work.push_back((number, work));
        // A wake-up is on its way for every earlier piece in the queue: only idle workers beyond those are free.
        if queue.idle as usize >= queue.work.len() {
            acct.bell.fetch_add(1, Relaxed);
            drop(queue);
            futex_wake(&acct.bell, 1);
            return Ok(());
        }
        if queue.idle > 0 {
            acct.bell.fetch_add(1, Relaxed);
            futex_wake(&acct.bell, 1);
        }
        if queue.workers >= queue.max_workers || self.start_worker(account, &mut queue).is_ok() || queue.workers > 0 {
            return Ok(());
        }
        // Degrade: nobody will ever run it.
        match queue.work.pop_back() {
            Some((_, work)) => Err(work),
            None => Ok(()),
        }
    }

    fn start_worker(self: &Arc<Self>, account: Account, queue: &mut Queue<W>) -> Result<(), Errno> {
        let pool = Arc::clone(self);
        let credentials = self.credentials.load(Relaxed);
        thread::install_interrupt_handler();
        thread::spawn(&name("iou-wrk-", process::pid()), move || pool.work(account, credentials))?;
        queue.workers += 1;
        Ok(())
    }

    /// A worker's life.
    fn work(self: Arc<Self>, account: Account, credentials: u32) {
        thread::accept_interrupts();
        if let Some(mask) = *self.affinity.lock() {
            thread::set_affinity(&mask);
        }
        let tid = process::tid();
        let acct = &self.accts[account as usize];
        let mut queue = acct.queue.lock();
        while self.credentials.load(Relaxed) == credentials {
            if let Some((number, work)) = queue.work.pop_front() {
                queue.running.push((number, tid));
                drop(queue);
                work.run();
                queue = acct.queue.lock();
                queue.running.retain(|&(other, _)| other != number);
                continue;
            }
            if queue.workers > queue.max_workers {
                break;
            }
            queue.idle += 1;
            let seen = acct.bell.load(Relaxed);
            drop(queue);
            let slept = futex_wait(&acct.bell, seen, process::monotonic_ns() + IDLE_NS);
            queue = acct.queue.lock();
            queue.idle -= 1;
            if slept == Err(Errno::ETIMEDOUT) && queue.work.is_empty() {
                break;
            }
        }
        // Credentials changed under queued work: a worker with the new ones takes this one's place, whatever the others
        // are at: they may wait for this very work. The last one may not end before there is another.
        while !queue.work.is_empty() && self.start_worker(account, &mut queue).is_err() && queue.workers == 1 {
            let away = MutexGuard::let_go(&mut queue);
            process::sleep_ns(RETRY_NS);
            away.take_back();
        }
        queue.workers -= 1;
    }

    /// Ends idle workers: the pool's ring is gone.
    pub(crate) fn shut_down(&self) {
        for acct in &self.accts {
            let mut queue = acct.queue.lock();
            queue.max_workers = 0;
            if queue.idle > 0 {
                acct.bell.fetch_add(1, Relaxed);
                futex_wake(&acct.bell, u32::MAX);
            }
        }
    }

    /// Takes a piece of work back, or interrupts it.
    pub(crate) fn cancel(&self, number: u64) -> Cancelled<W> {
        for acct in &self.accts {
            let mut queue = acct.queue.lock();
            if let Some(at) = queue.work.iter().position(|&(other, _)| other == number) {
                return queue.work.remove(at).map_or(Cancelled::Unknown, |(_, work)| Cancelled::Queued(work));
            }
            if let Some(&(_, tid)) = queue.running.iter().find(|&&(other, _)| other == number) {
                // Under the lock, so the thread is still at it, or at most about to take the lock.
                thread::interrupt(tid);
                return Cancelled::Running;
            }
        }
        Cancelled::Unknown
    }

    /// Takes a piece of bounded work back that no worker has begun.
    pub(crate) fn take_back(&self, number: u64) -> Option<W> {
        let mut queue = self.accts[Account::Bound as usize].queue.lock();
        let at = queue.work.iter().position(|&(other, _)| other == number)?;
        queue.work.remove(at).map(|(_, work)| work)
    }

    /// `IORING_REGISTER_IOWQ_MAX_WORKERS`: sets limits (0 leaves one alone), returns the old ones.
    pub(crate) fn set_max_workers(&self, new: [u32; 2]) -> [u32; 2] {
        // Never 0, which would leave work to nobody.
        let nproc = process::rlimit_nproc().clamp(1, u64::from(u32::MAX >> 1)) as u32;
        core::array::from_fn(|i| {
            let mut queue = self.accts[i].queue.lock();
            let old = queue.max_workers;
            if new[i] != 0 {
                queue.max_workers = new[i].min(nproc);
            }
            old
        })
    }

    /// CPUs that workers may use; `None` for any. Workers started from now on obey.
    pub(crate) fn set_affinity(&self, mask: Option<[u64; 16]>) {
        *self.affinity.lock() = mask;
    }

    /// The process' credentials changed: workers with the old ones end when they are done.
    pub(crate) fn renew(&self) {
        self.credentials.fetch_add(1, Relaxed);
        for acct in &self.accts {
            let queue = acct.queue.lock();
            acct.bell.fetch_add(1, Relaxed);
            futex_wake(&acct.bell, u32::MAX);
            drop(queue);
        }
    }
}

/// A ring's share in a pool: the pool ends with the last one.
#[derive(Clone, Debug)]
pub(crate) struct Pool(Arc<Share>);

#[derive(Debug)]
struct Share(Arc<IoWq<Punted>>);

impl Pool {
    /// A pool of its own for a ring of `sq_entries`.
    pub(crate) fn new(sq_entries: u32) -> Self {
        Self(Arc::new(Share(IoWq::new(sq_entries))))
    }

    /// A pool with these limits of bounded and unbounded workers.
    pub(crate) fn with_limits(max_workers: [u32; 2]) -> Self {
        Self(Arc::new(Share(IoWq::with_limits(max_workers))))
    }

    /// In a forked child: the pool's threads are the parent's, its locks may be held by them.
    pub(crate) fn forget(&self) {
        core::mem::forget(self.clone());
    }
}

impl core::ops::Deref for Pool {
    type Target = Arc<IoWq<Punted>>;
    fn deref(&self) -> &Arc<IoWq<Punted>> {
        &(self.0).0
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.0.shut_down();
    }
}

/// `prefix` and a number, as ps shows a thread.
pub(crate) fn name(prefix: &str, n: u32) -> alloc::string::String {
    alloc::format!("{prefix}{n}")
}
