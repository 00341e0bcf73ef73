//! Two processes, as threads, use a ring: one at a time is inside, what one did there the next one sees, and who waits
//! for news hears of it.

use super::{BiasedLock, Held};
use crate::model;
use loom::cell::UnsafeCell;
use loom::thread;
use std::sync::Arc;

#[derive(Default)]
struct SharedQueue {
    lock: BiasedLock,
    /// loom reports two threads in it at once.
    posted: UnsafeCell<u32>,
}

// SAFETY: that one process at a time is inside is what is modelled.
unsafe impl Send for SharedQueue {}
// SAFETY: as above.
unsafe impl Sync for SharedQueue {}

impl SharedQueue {
    fn post(&self) {
        // SAFETY: this thread is inside; where another is, too, loom says so.
        self.posted.with_mut(|posted| unsafe { *posted += 1 });
    }

    fn count(&self) -> u32 {
        // SAFETY: as above.
        self.posted.with(|posted| unsafe { *posted })
    }

    fn maker_posts(&self) {
        let inside = self.lock.acquire();
        self.post();
        let news = (inside == Held::Shared).then(|| self.lock.notify());
        self.lock.release(inside);
        if let Some(news) = news {
            news.wake();
        }
    }
}

/// Runs both sides; the maker's is the model's own thread.
fn both(heir: impl FnOnce(&SharedQueue) + Send + 'static, maker: impl FnOnce(&SharedQueue)) -> Arc<SharedQueue> {
    let queue = Arc::new(SharedQueue::default());
    let other = thread::spawn({
        let queue = Arc::clone(&queue);
        move || {
            queue.lock.revoke_bias();
            heir(&queue);
        }
    });
    maker(&queue);
    other.join().unwrap();
    queue
}

#[test]
fn the_maker_and_its_heir_are_never_inside_together() {
    model::check(4, || {
        let heir = |queue: &SharedQueue| {
            queue.lock.acquire_shared();
            queue.post();
            queue.lock.release(Held::Shared);
        };
        let maker = |queue: &SharedQueue| (0..2).for_each(|_| queue.maker_posts());
        let queue = both(heir, maker);
        assert_eq!(queue.count(), 3);
    });
}

#[test]
fn an_heir_that_waits_hears_of_each_post() {
    model::check(3, || {
        let heir = |queue: &SharedQueue| {
            loop {
                queue.lock.acquire_shared();
                let is_done = queue.count() == 2;
                let news = queue.lock.event_seq();
                queue.lock.release(Held::Shared);
                if is_done {
                    return;
                }
                let _ = news.wait(u64::MAX);
            }
        };
        both(heir, |queue| (0..2).for_each(|_| queue.maker_posts()));
    });
}
