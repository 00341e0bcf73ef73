//! The same pool under a single lock, as in Linux until 5.18. The lock guards work lists, hash
//! keys, free lists and worker counts of both classes. With all of it visible at once nothing needs
//! a second look, a fence, or a word beside the lock.

use crate::load::BenchItem;
use crate::phases::BenchPool;
use std::sync::Arc;
use uringlet_core::io_wq::{Account, KeyLease, WakeAction, Work, WorkList, Worker, WorkerCounts};
use uringlet_sys::lock::{LockWaits, Mutex, MutexGuard, TimedLock};
use uringlet_sys::{process, thread};

/// All that the lock guards.
#[derive(Debug)]
struct SingleLockState {
    lists: [WorkList<BenchItem>; 2],
    counts: [WorkerCounts<Arc<Worker>>; 2],
}

#[derive(Debug)]
pub(crate) struct SingleLock(Arc<Mutex<SingleLockState, TimedLock>>);

type Guard<'a> = MutexGuard<'a, SingleLockState, TimedLock>;

impl SingleLock {
    pub(crate) fn new(limits: [u32; 2]) -> Self {
        Self(Arc::new(Mutex::of(SingleLockState { lists: Default::default(), counts: limits.map(WorkerCounts::new) })))
    }
}

impl BenchPool for SingleLock {
    fn enqueue(&self, account: Account, number: u64, item: BenchItem) {
        let mut all = self.0.lock();
        if all.lists[account as usize].push(number, None, item) {
            wake_if_ready(&self.0, account, all);
        }
    }

    fn waits(&self) -> LockWaits {
        self.0.raw().waits()
    }
}

/// Lets a parked or new worker run for ready work, unless one is already on its way.
fn wake_if_ready(pool: &Arc<Mutex<SingleLockState, TimedLock>>, account: Account, mut all: Guard<'_>) {
    match all.counts[account as usize].wake_action(process::monotonic_ns) {
        WakeAction::Nothing => {}
        WakeAction::Wake(worker) => {
            worker.mark_woken();
            drop(all);
            worker.wake();
        }
        WakeAction::Start => {
            let pool = Arc::clone(pool);
            let started = thread::spawn("iou-wrk-bench", move || worker_main(&pool, account));
            let counts = &mut all.counts[account as usize];
            if started.is_ok() { counts.started() } else { counts.start_failed(process::monotonic_ns()) }
        }
    }
}

fn worker_main(pool: &Arc<Mutex<SingleLockState, TimedLock>>, account: Account) {
    let me = Worker::new();
    me.bind_thread();
    let class = account as usize;
    let mut is_searching = true;
    let mut done = KeyLease::None;
    let mut all = pool.lock();
    let slot = all.lists[class].attach_worker(Arc::clone(&me));
    loop {
        if let Some((item, lease)) = all.lists[class].next(slot, std::mem::take(&mut done)) {
            done = lease;
            if std::mem::take(&mut is_searching) {
                all.counts[class].stop_searching();
                if all.lists[class].ready() > 0 {
                    wake_if_ready(pool, account, all);
                } else {
                    drop(all);
                }
            } else {
                drop(all);
            }
            item.run(me.interrupts());
        } else {
            if std::mem::take(&mut is_searching) {
                all.counts[class].stop_searching();
            }
            me.prepare_park();
            all.counts[class].park(Arc::clone(&me));
            drop(all);
            is_searching = me.park(u64::MAX);
        }
        all = pool.lock();
    }
}
