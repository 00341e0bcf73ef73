//! Work is handed over while workers start, fall asleep, time out, are told to go: every piece runs exactly once, or
//! comes back from a cancel. A lost wake-up is a thread that sleeps for ever, which loom reports as a deadlock.

use super::worker::IDLE_NS;
use super::*;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use uringlet_sys::lock::{futex_wait, futex_wake};
use uringlet_sys::model;
use uringlet_sys::model::checker::thread;
use uringlet_sys::sync::AtomicBool;

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
    room: Option<(Arc<Room>, u32)>,
}

/// Where pieces of one key are, one at a time and in order.
#[derive(Debug)]
struct Room {
    next: AtomicU32,
    is_taken: AtomicBool,
}

impl Room {
    fn new() -> Arc<Self> {
        Arc::new(Self { next: AtomicU32::new(0), is_taken: AtomicBool::new(false) })
    }

    fn pass(&self, nth: u32) {
        assert!(!self.is_taken.swap(true, AcqRel));
        assert_eq!(self.next.fetch_add(1, AcqRel), nth);
        self.is_taken.store(false, Release);
    }
}

impl Work for Piece {
    fn run(self, _: &Exposure) {
        if self.announces {
            self.tally.add();
        }
        self.tally.wait_for(self.after);
        if let Some((room, nth)) = &self.room {
            room.pass(*nth);
        }
        self.tally.add();
    }
}

fn hand_over(pool: &Arc<IoWq<Piece>>, tally: &Arc<Tally>, after: u32) -> u64 {
    enqueue(pool, Piece { tally: Arc::clone(tally), after, announces: false, room: None })
}

fn enqueue(pool: &Arc<IoWq<Piece>>, piece: Piece) -> u64 {
    let number = pool.number();
    assert!(pool.enqueue(Account::Bound, None, number, piece).is_ok());
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

/// The nth piece of the key.
fn hand_over_hashed(pool: &Arc<IoWq<Piece>>, tally: &Arc<Tally>, room: &Arc<Room>, nth: u32) -> u64 {
    let number = pool.number();
    let piece = Piece { tally: Arc::clone(tally), after: 0, announces: false, room: Some((Arc::clone(room), nth)) };
    assert!(pool.enqueue(Account::Bound, Some(HashKey::new(7)), number, piece).is_ok());
    number
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
        enqueue(&pool, Piece { tally: Arc::clone(&tally), after: 3, announces: true, room: None });
        hand_over(&pool, &tally, 0);
        tally.wait_for(2);
        hand_over(&pool, &tally, 0);
        pool.renew();
        tally.wait_for(4);
    });
}

#[test]
fn pieces_of_one_key_run_one_at_a_time_and_in_order() {
    model::check(2, || {
        let (pool, tally, room) = (IoWq::with_limits([2, 1]), Tally::new(), Room::new());
        hand_over_hashed(&pool, &tally, &room, 0);
        hand_over_hashed(&pool, &tally, &room, 1);
        hand_over(&pool, &tally, 0);
        hand_over_hashed(&pool, &tally, &room, 2);
        tally.wait_for(4);
    });
}

#[test]
fn what_waits_for_its_key_is_overtaken_and_gets_no_worker() {
    model::check(2, || {
        let (pool, tally, room) = (IoWq::with_limits([8, 1]), Tally::new(), Room::new());
        let number = pool.number();
        let first = Piece { tally: Arc::clone(&tally), after: 1, announces: false, room: Some((Arc::clone(&room), 0)) };
        assert!(pool.enqueue(Account::Bound, Some(HashKey::new(7)), number, first).is_ok());
        hand_over_hashed(&pool, &tally, &room, 1);
        hand_over_hashed(&pool, &tally, &room, 2);
        hand_over(&pool, &tally, 0);
        tally.wait_for(4);
        assert!(pool.crew.lock().sides[0].workers <= 2);
    });
}

#[test]
fn a_cancelled_piece_passes_its_key_on() {
    model::check(2, || {
        let (pool, tally, room) = (IoWq::with_limits([1, 1]), Tally::new(), Room::new());
        hand_over_hashed(&pool, &tally, &room, 0);
        let second = hand_over_hashed(&pool, &tally, &Room::new(), 0);
        hand_over_hashed(&pool, &tally, &Room::new(), 0);
        if let Cancelled::Queued(piece) = pool.cancel(second) {
            drop(piece);
            tally.add();
        }
        tally.wait_for(3);
    });
}

#[test]
fn a_class_that_is_full_does_not_hold_up_the_other() {
    model::check(2, || {
        let (pool, tally) = (IoWq::with_limits([1, 1]), Tally::new());
        hand_over(&pool, &tally, 1);
        let number = pool.number();
        let piece = Piece { tally: Arc::clone(&tally), after: 0, announces: false, room: None };
        assert!(pool.enqueue(Account::Unbound, None, number, piece).is_ok());
        tally.wait_for(2);
    });
}

#[test]
fn a_higher_limit_is_used_at_once() {
    model::check(2, || {
        let (pool, tally) = (IoWq::with_limits([1, 1]), Tally::new());
        hand_over(&pool, &tally, 1);
        hand_over(&pool, &tally, 0);
        assert_eq!(pool.set_max_workers([2, 0]), [1, 1]);
        tally.wait_for(2);
    });
}

#[test]
fn a_lower_limit_is_kept() {
    model::check(2, || {
        let (pool, tally) = (IoWq::with_limits([2, 1]), Tally::new());
        hand_over(&pool, &tally, 0);
        hand_over(&pool, &tally, 0);
        pool.set_max_workers([1, 0]);
        tally.wait_for(2);
        hand_over(&pool, &tally, 0);
        tally.wait_for(3);
    });
}

/// Waits, exposed, until it is dealt with or interrupted, as a blocking call does.
#[test]
fn who_is_cancelled_is_not_begun_or_interrupted_until_it_is_over() {
    model::check(4, || {
        let exposure = Arc::new(Exposure::new());
        let worker = thread::spawn({
            let exposure = Arc::clone(&exposure);
            move || {
                let blocked = exposure.during(|| {
                    while model::alarms() == 0 {
                        thread::yield_now();
                    }
                });
                assert_eq!(model::alarms(), 0);
                blocked.is_some()
            }
        });
        exposure.cancel(1);
        // Asked again, also after the end: nobody else is hit.
        exposure.cancel(1);
        worker.join().unwrap();
        assert_eq!(model::alarms(), 0);
        exposure.cancel(1);
        assert_eq!(model::alarms(), 0);
    });
}
