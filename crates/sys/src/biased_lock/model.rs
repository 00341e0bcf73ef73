//! Two processes, as threads, use a ring: only one holds the lock, the next holder sees what the
//! last one stored, and a waiter for events sees each.

use super::{BiasedLock, Held};
use crate::{model, process};
use loom::cell::UnsafeCell;
use loom::thread;
use std::sync::Arc;

#[derive(Default)]
struct SharedQueue {
    lock: BiasedLock,
    /// loom reports two threads in it at once.
    posted: UnsafeCell<u32>,
}

// SAFETY: the model checks that only one process at a time holds the lock.
unsafe impl Send for SharedQueue {}
// SAFETY: as above.
unsafe impl Sync for SharedQueue {}

impl SharedQueue {
    fn post(&self) {
        // SAFETY: this thread holds the lock; loom reports another one that accesses the cell.
        self.posted.with_mut(|posted| unsafe { *posted += 1 });
    }

    fn count(&self) -> u32 {
        // SAFETY: as above.
        self.posted.with(|posted| unsafe { *posted })
    }

    fn maker_posts(&self) {
        let held = self.lock.acquire(process::pid());
        self.post();
        let event_seq = (held == Held::Shared).then(|| self.lock.notify());
        self.lock.release(held);
        if let Some(event_seq) = event_seq {
            event_seq.wake();
        }
    }
}

/// Runs both sides; the maker's is the model's own thread.
fn both(child: impl FnOnce(&SharedQueue) + Send + 'static, maker: impl FnOnce(&SharedQueue)) -> Arc<SharedQueue> {
    let queue = Arc::new(SharedQueue::default());
    let other = thread::spawn({
        let queue = Arc::clone(&queue);
        move || {
            queue.lock.revoke_bias();
            child(&queue);
        }
    });
    maker(&queue);
    other.join().unwrap();
    queue
}

#[test]
fn maker_and_child_never_hold_the_lock_together() {
    model::check(4, || {
        let child = |queue: &SharedQueue| {
            queue.lock.acquire_shared();
            queue.post();
            queue.lock.release(Held::Shared);
        };
        let maker = |queue: &SharedQueue| (0..2).for_each(|_| queue.maker_posts());
        let queue = both(child, maker);
        assert_eq!(queue.count(), 3);
    });
}

#[test]
fn a_waiting_child_sees_each_post() {
    model::check(3, || {
        let child = |queue: &SharedQueue| {
            loop {
                queue.lock.acquire_shared();
                let is_done = queue.count() == 2;
                let event_seq = queue.lock.event_seq();
                queue.lock.release(Held::Shared);
                if is_done {
                    return;
                }
                let _ = event_seq.wait(u64::MAX);
            }
        };
        both(child, |queue| (0..2).for_each(|_| queue.maker_posts()));
    });
}
