//! The rival: the same pool under a single lock, as Linux' was until 5.18. Work lists, hash keys, free lists and worker counts of both classes are
//! guarded by it; with all of them in sight nothing has to be looked at twice, so it needs no fence and no words beside the lock.

use crate::load::Item;
use crate::phases::Pool;
use std::sync::Arc;
use uringlet::io_wq::{Account, Call, List, Side, Turn, Work, Worker};
use uringlet_sys::lock::{Mutex, MutexGuard, TimedLock, Waits};
use uringlet_sys::{process, thread};

/// All there is.
#[derive(Debug)]
struct All {
    lists: [List<Item>; 2],
    sides: [Side<Arc<Worker>>; 2],
}

#[derive(Debug)]
pub(crate) struct OneLock(Arc<Mutex<All, TimedLock>>);

type Guard<'a> = MutexGuard<'a, All, TimedLock>;

impl OneLock {
    pub(crate) fn new(limits: [u32; 2]) -> Self {
        Self(Arc::new(Mutex::of(All { lists: Default::default(), sides: limits.map(Side::new) })))
    }
}

impl Pool for OneLock {
    fn enqueue(&self, account: Account, number: u64, item: Item) {
        let mut all = self.0.lock();
        if all.lists[account as usize].push(number, None, item) {
            rouse(&self.0, account, all);
        }
    }

    fn waits(&self) -> Waits {
        self.0.raw().waits()
    }
}

/// There is work: somebody comes for it, unless somebody is on the way.
fn rouse(pool: &Arc<Mutex<All, TimedLock>>, account: Account, mut all: Guard<'_>) {
    match all.sides[account as usize].call(process::monotonic_ns) {
        Call::Nobody => {}
        Call::Wake(worker) => {
            worker.call();
            drop(all);
            worker.wake();
        }
        Call::Start => {
            let pool = Arc::clone(pool);
            let started = thread::spawn("iou-wrk-bench", move || live(&pool, account));
            let side = &mut all.sides[account as usize];
            if started.is_ok() { side.started() } else { side.start_failed(process::monotonic_ns()) }
        }
    }
}

fn live(pool: &Arc<Mutex<All, TimedLock>>, account: Account) {
    let me = Worker::new();
    me.enlist();
    let class = account as usize;
    let mut is_searching = true;
    let mut done = Turn::Free;
    let mut all = pool.lock();
    let seat = all.lists[class].sit_down(Arc::clone(&me));
    loop {
        if let Some((item, turn)) = all.lists[class].next(seat, std::mem::take(&mut done)) {
            done = turn;
            if std::mem::take(&mut is_searching) {
                all.sides[class].found();
                if all.lists[class].ready() > 0 {
                    rouse(pool, account, all);
                } else {
                    drop(all);
                }
            } else {
                drop(all);
            }
            item.run(me.exposure());
        } else {
            if std::mem::take(&mut is_searching) {
                all.sides[class].found();
            }
            me.lie_down();
            all.sides[class].rest(Arc::clone(&me));
            drop(all);
            is_searching = me.sleep(u64::MAX);
        }
        all = pool.lock();
    }
}
