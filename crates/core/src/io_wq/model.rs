//! Work is handed over while workers start, fall asleep, time out, are told to go: every piece runs exactly once, or
//! comes back from a cancel. A lost wake-up is a thread that sleeps for ever, which loom reports as a deadlock.

use super::*;
use core::sync::atomic::Ordering::{AcqRel, Acquire};
use loom::thread;
use uringlet_sys::model;

/// Counts pieces of work that were dealt with.
#[derive(Debug)]
struct Tally {
    done: AtomicU32,
}

impl Tally {
    fn new() -> Arc<Self> {
        Arc::new(Self { done: AtomicU32::new(0) })
    }

    fn add(&self) {
        self.done.fetch_add(1, AcqRel);
        futex_wake(&self.done, u32::MAX);
    }

    /// Waits until `n` pieces are dealt with.
    fn wait_for(&self, n: u32) {
        loop {
            let seen = self.done.load(Acquire);
            if seen >= n {
                return;
            }
            let _ = futex_wait(&self.done, seen, u64::MAX);
        }
    }

    fn assert(&self, n: u32) {
        assert_eq!(self.done.load(Acquire), n);
    }
}

/// A piece of work: is dealt with when `after` others are. It counts also when it begins, if it `announces` that.
struct Piece {
    tally: Arc<Tally>,
    after: u32,
    announces: bool,
}

impl Work for Piece {
    fn run(self) {
        if self.announces {
            self.tally.add();
        }
        self.tally.wait_for(self.after);
        self.tally.add();
    }
}

fn hand_over(pool: &Arc<IoWq<Piece>>, tally: &Arc<Tally>, after: u32) -> u64 {
    enqueue(pool, Piece { tally: Arc::clone(tally), after, announces: false })
}

fn enqueue(pool: &Arc<IoWq<Piece>>, piece: Piece) -> u64 {
    let number = pool.number();
    assert!(pool.enqueue(Account::Bound, number, piece).is_ok());
    number
}

#[test]
fn work_wakes_a_worker_that_is_about_to_sleep() {
    model::check(3, || {
        let (pool, tally) = (IoWq::with_limits([1, 1]), Tally::new());
        hand_over(&pool, &tally, 0);
        hand_over(&pool, &tally, 0);
        tally.wait_for(2);
    });
}

#[test]
fn two_submitters_share_one_worker() {
    model::check(2, || {
        let (pool, tally) = (IoWq::with_limits([1, 1]), Tally::new());
        let other = thread::spawn({
            let (pool, tally) = (Arc::clone(&pool), Arc::clone(&tally));
            move || hand_over(&pool, &tally, 0)
        });
        hand_over(&pool, &tally, 0);
        other.join().unwrap();
        tally.wait_for(2);
    });
}

#[test]
fn work_that_waits_for_other_work_gets_a_worker_of_its_own() {
    model::check(2, || {
        let (pool, tally) = (IoWq::with_limits([2, 1]), Tally::new());
        hand_over(&pool, &tally, 1);
        hand_over(&pool, &tally, 0);
        tally.wait_for(2);
    });
}

#[test]
fn an_idle_worker_is_promised_to_one_piece_only() {
    model::check(2, || {
        let (pool, tally) = (IoWq::with_limits([2, 1]), Tally::new());
        hand_over(&pool, &tally, 0);
        tally.wait_for(1);
        hand_over(&pool, &tally, 2);
        hand_over(&pool, &tally, 0);
        tally.wait_for(3);
    });
}

#[test]
fn work_comes_while_the_last_worker_times_out() {
    model::check(3, || {
        let (pool, tally) = (IoWq::with_limits([1, 1]), Tally::new());
        hand_over(&pool, &tally, 0);
        let clock = thread::spawn(|| model::advance_to(IDLE_NS));
        hand_over(&pool, &tally, 0);
        tally.wait_for(2);
        clock.join().unwrap();
    });
}

#[test]
fn a_pool_that_is_shut_down_runs_what_it_has() {
    model::check(3, || {
        let (pool, tally) = (IoWq::with_limits([2, 1]), Tally::new());
        hand_over(&pool, &tally, 0);
        hand_over(&pool, &tally, 0);
        pool.shut_down();
        tally.wait_for(2);
        model::join_threads();
        tally.assert(2);
    });
}

#[test]
fn cancelled_work_comes_back_or_runs() {
    model::check(3, || {
        let (pool, tally) = (IoWq::with_limits([1, 1]), Tally::new());
        hand_over(&pool, &tally, 0);
        let second = hand_over(&pool, &tally, 0);
        if let Cancelled::Queued(piece) = pool.cancel(second) {
            drop(piece);
            tally.add();
        }
        tally.wait_for(2);
        assert!(matches!(pool.cancel(second), Cancelled::Running | Cancelled::Unknown));
        tally.assert(2);
    });
}

#[test]
fn new_credentials_strand_no_work() {
    model::check(1, || {
        let (pool, tally) = (IoWq::with_limits([2, 1]), Tally::new());
        // One worker is at work that waits for the last piece; the other one is free, with the old credentials.
        enqueue(&pool, Piece { tally: Arc::clone(&tally), after: 3, announces: true });
        hand_over(&pool, &tally, 0);
        tally.wait_for(2);
        hand_over(&pool, &tally, 0);
        pool.renew();
        tally.wait_for(4);
    });
}
