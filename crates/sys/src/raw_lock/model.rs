//! Threads want a lock: one at a time has it, each gets it, and what one wrote under it the next
//! one sees.

use super::RawLock;
use crate::model;
use loom::cell::UnsafeCell;
use loom::thread;
use std::sync::Arc;

struct ModelCounter {
    lock: RawLock,
    /// loom reports two threads in it at once.
    value: UnsafeCell<u32>,
}

// SAFETY: the lock is what is modelled.
unsafe impl Send for ModelCounter {}
// SAFETY: as above.
unsafe impl Sync for ModelCounter {}

impl ModelCounter {
    fn add(&self) {
        self.lock.lock();
        self.count();
        self.lock.unlock();
    }

    fn count(&self) {
        // SAFETY: the lock is held; where it is not, loom says so.
        self.value.with_mut(|value| unsafe { *value += 1 });
    }
}

fn contention(threads: u32, rounds: u32) {
    let counter = Arc::new(ModelCounter { lock: RawLock::new(), value: UnsafeCell::new(0) });
    let others: std::vec::Vec<_> = (1..threads)
        .map(|_| {
            let counter = Arc::clone(&counter);
            thread::spawn(move || (0..rounds).for_each(|_| counter.add()))
        })
        .collect();
    (0..rounds).for_each(|_| counter.add());
    for other in others {
        other.join().unwrap();
    }
    // SAFETY: the other threads are done.
    counter.value.with(|value| assert_eq!(unsafe { *value }, threads * rounds));
}

#[test]
fn two_threads_take_turns() {
    model::check(4, || contention(2, 2));
}

#[test]
fn an_unlock_wakes_the_next_of_three() {
    model::check(2, || contention(3, 1));
}

#[test]
fn a_lock_that_is_tried_is_had_or_not() {
    model::check(4, || {
        let counter = Arc::new(ModelCounter { lock: RawLock::new(), value: UnsafeCell::new(0) });
        let other = thread::spawn({
            let counter = Arc::clone(&counter);
            move || counter.add()
        });
        if counter.lock.try_lock() {
            counter.count();
            counter.lock.unlock();
        }
        other.join().unwrap();
    });
}
