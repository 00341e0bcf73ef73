//! Two processes, as threads, use a ring: one at a time is inside, what one did there the next one sees, and who waits
//! for news hears of it.

use super::{Commons, Inside};
use crate::model;
use loom::cell::UnsafeCell;
use loom::thread;
use std::sync::Arc;

#[derive(Default)]
struct Queue {
    commons: Commons,
    /// loom reports two threads in it at once.
    posted: UnsafeCell<u32>,
}

// SAFETY: that one process at a time is inside is what is modelled.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

impl Queue {
    fn post(&self) {
        // SAFETY: this thread is inside; where another is, too, loom says so.
        self.posted.with_mut(|posted| unsafe { *posted += 1 });
    }

    fn count(&self) -> u32 {
        // SAFETY: as above.
        self.posted.with(|posted| unsafe { *posted })
    }

    fn maker_posts(&self) {
        let inside = self.commons.enter();
        self.post();
        let news = (inside == Inside::Locked).then(|| self.commons.tell());
        self.commons.leave(inside);
        if let Some(news) = news {
            news.wake();
        }
    }
}

/// Runs both sides; the maker's is the model's own thread.
fn both(heir: impl FnOnce(&Queue) + Send + 'static, maker: impl FnOnce(&Queue)) -> Arc<Queue> {
    let queue = Arc::new(Queue::default());
    let other = thread::spawn({
        let queue = Arc::clone(&queue);
        move || {
            queue.commons.claim();
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
        let heir = |queue: &Queue| {
            queue.commons.lock();
            queue.post();
            queue.commons.leave(Inside::Locked);
        };
        let maker = |queue: &Queue| (0..2).for_each(|_| queue.maker_posts());
        let queue = both(heir, maker);
        assert_eq!(queue.count(), 3);
    });
}

#[test]
fn an_heir_that_waits_hears_of_each_post() {
    model::check(3, || {
        let heir = |queue: &Queue| {
            loop {
                queue.commons.lock();
                let is_done = queue.count() == 2;
                let news = queue.commons.news();
                queue.commons.leave(Inside::Locked);
                if is_done {
                    return;
                }
                let _ = news.wait(u64::MAX);
            }
        };
        both(heir, |queue| (0..2).for_each(|_| queue.maker_posts()));
    });
}
