//! Work is handed over while workers start, park, time out, are made to exit: every piece runs
//! exactly once, or comes back from a cancel. A lost wake-up is a thread that sleeps for ever,
//! which loom reports as a deadlock.

use super::worker_loop::IDLE_NS;
use super::*;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use uringlet_sys::lock::{futex_wait, futex_wake};
use uringlet_sys::model;
use uringlet_sys::model::checker::thread;
use uringlet_sys::sync::{AtomicBool, AtomicU32};

/// Counts pieces of work that have ended.
#[derive(Debug)]
struct DoneCount {
    done: AtomicU32,
}

impl DoneCount {
    fn new() -> Arc<Self> {
        Arc::new(Self { done: AtomicU32::new(0) })
    }

    fn add(&self) {
        self.done.fetch_add(1, AcqRel);
        futex_wake(&self.done, u32::MAX);
    }

    /// Waits until `n` pieces have ended.
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

/// A piece of work: ends when `after` others have. It also counts its beginning if it `announces`
/// that.
struct ModelWork {
    done_count: Arc<DoneCount>,
    after: u32,
    announces: bool,
    key_order: Option<(Arc<KeyOrder>, u32)>,
}

/// Asserts that pieces of one key run one at a time and in order.
#[derive(Debug)]
struct KeyOrder {
    next: AtomicU32,
    is_taken: AtomicBool,
}

impl KeyOrder {
    fn new() -> Arc<Self> {
        Arc::new(Self { next: AtomicU32::new(0), is_taken: AtomicBool::new(false) })
    }

    fn pass(&self, nth: u32) {
        assert!(!self.is_taken.swap(true, AcqRel));
        assert_eq!(self.next.fetch_add(1, AcqRel), nth);
        self.is_taken.store(false, Release);
    }
}

impl Work for ModelWork {
    fn run(self, _: &InterruptGuard) {
        if self.announces {
            self.done_count.add();
        }
        self.done_count.wait_for(self.after);
        if let Some((key_order, nth)) = &self.key_order {
            key_order.pass(*nth);
        }
        self.done_count.add();
    }
}

fn hand_over(pool: &Arc<IoWq<ModelWork>>, done_count: &Arc<DoneCount>, after: u32) -> u64 {
    enqueue(pool, ModelWork { done_count: Arc::clone(done_count), after, announces: false, key_order: None })
}

fn enqueue(pool: &Arc<IoWq<ModelWork>>, piece: ModelWork) -> u64 {
    let number = pool.number();
    assert!(pool.enqueue(Account::Bound, None, number, piece).is_ok());
    number
}

#[test]
fn work_wakes_a_worker_that_is_about_to_park() {
    model::check(3, || {
        let (pool, done_count) = (IoWq::with_limits([1, 1]), DoneCount::new());
        hand_over(&pool, &done_count, 0);
        hand_over(&pool, &done_count, 0);
        done_count.wait_for(2);
    });
}

/// The nth piece of the key.
fn hand_over_hashed(pool: &Arc<IoWq<ModelWork>>, done_count: &Arc<DoneCount>, key_order: &Arc<KeyOrder>, nth: u32) -> u64 {
    let number = pool.number();
    let piece = ModelWork { done_count: Arc::clone(done_count), after: 0, announces: false, key_order: Some((Arc::clone(key_order), nth)) };
    assert!(pool.enqueue(Account::Bound, Some(HashKey::new(7)), number, piece).is_ok());
    number
}

#[test]
fn two_submitters_share_one_worker() {
    model::check(2, || {
        let (pool, done_count) = (IoWq::with_limits([1, 1]), DoneCount::new());
        let other = thread::spawn({
            let (pool, done_count) = (Arc::clone(&pool), Arc::clone(&done_count));
            move || hand_over(&pool, &done_count, 0)
        });
        hand_over(&pool, &done_count, 0);
        other.join().unwrap();
        done_count.wait_for(2);
    });
}

#[test]
fn work_that_waits_for_other_work_gets_a_worker_of_its_own() {
    model::check(2, || {
        let (pool, done_count) = (IoWq::with_limits([2, 1]), DoneCount::new());
        hand_over(&pool, &done_count, 1);
        hand_over(&pool, &done_count, 0);
        done_count.wait_for(2);
    });
}

#[test]
fn idle_worker_is_promised_to_one_piece_only() {
    model::check(2, || {
        let (pool, done_count) = (IoWq::with_limits([2, 1]), DoneCount::new());
        hand_over(&pool, &done_count, 0);
        done_count.wait_for(1);
        hand_over(&pool, &done_count, 2);
        hand_over(&pool, &done_count, 0);
        done_count.wait_for(3);
    });
}

#[test]
fn work_comes_while_the_last_worker_times_out() {
    model::check(3, || {
        let (pool, done_count) = (IoWq::with_limits([1, 1]), DoneCount::new());
        hand_over(&pool, &done_count, 0);
        let clock = thread::spawn(|| model::advance_to(IDLE_NS));
        hand_over(&pool, &done_count, 0);
        done_count.wait_for(2);
        clock.join().unwrap();
    });
}

#[test]
fn pool_that_is_shut_down_runs_its_queued_work() {
    model::check(3, || {
        let (pool, done_count) = (IoWq::with_limits([2, 1]), DoneCount::new());
        hand_over(&pool, &done_count, 0);
        hand_over(&pool, &done_count, 0);
        pool.shut_down();
        done_count.wait_for(2);
        model::join_threads();
        done_count.assert(2);
    });
}

#[test]
fn cancelled_work_comes_back_or_runs() {
    model::check(3, || {
        let (pool, done_count) = (IoWq::with_limits([1, 1]), DoneCount::new());
        hand_over(&pool, &done_count, 0);
        let second = hand_over(&pool, &done_count, 0);
        if let Cancelled::Queued(piece) = pool.cancel(second, MayStart::Yes) {
            drop(piece);
            done_count.add();
        }
        done_count.wait_for(2);
        assert!(matches!(pool.cancel(second, MayStart::Yes), Cancelled::Running | Cancelled::Unknown));
        done_count.assert(2);
    });
}

/// By a thread that may not start a worker. Whether one comes for it.
fn hand_over_only(pool: &Arc<IoWq<ModelWork>>, done_count: &Arc<DoneCount>) -> bool {
    let piece = ModelWork { done_count: Arc::clone(done_count), after: 0, announces: false, key_order: None };
    pool.enqueue_only(Account::Bound, None, pool.number(), piece)
}

#[test]
fn work_of_a_thread_that_may_not_start_a_worker_finds_one_or_says_so() {
    model::check(2, || {
        let (pool, done_count) = (IoWq::with_limits([1, 1]), DoneCount::new());
        hand_over(&pool, &done_count, 0);
        let clock = thread::spawn(|| model::advance_to(IDLE_NS));
        if !hand_over_only(&pool, &done_count) {
            assert!(pool.start_missing().is_ok());
        }
        done_count.wait_for(2);
        clock.join().unwrap();
    });
}

#[test]
fn a_kept_worker_is_there_for_work_of_other_threads() {
    model::check(2, || {
        let (pool, done_count) = (IoWq::with_limits([1, 1]), DoneCount::new());
        let hold = pool.hold();
        pool.keep_worker(Account::Bound);
        let clock = thread::spawn(|| model::advance_to(IDLE_NS));
        assert!(hand_over_only(&pool, &done_count));
        drop(hold);
        done_count.wait_for(1);
        clock.join().unwrap();
    });
}

#[test]
fn work_that_comes_during_a_shutdown_is_run_or_abandoned() {
    model::check(2, || {
        let (pool, done_count) = (IoWq::with_limits([1, 1]), DoneCount::new());
        hand_over(&pool, &done_count, 0);
        let other = thread::spawn({
            let (pool, done_count) = (Arc::clone(&pool), Arc::clone(&done_count));
            move || hand_over_only(&pool, &done_count)
        });
        pool.shut_down();
        other.join().unwrap();
        model::join_threads();
        pool.take_abandoned().iter().for_each(|_| done_count.add());
        done_count.assert(2);
        assert!(pool.is_over());
    });
}

#[test]
fn pieces_of_one_key_run_one_at_a_time_and_in_order() {
    model::check(2, || {
        let (pool, done_count, key_order) = (IoWq::with_limits([2, 1]), DoneCount::new(), KeyOrder::new());
        hand_over_hashed(&pool, &done_count, &key_order, 0);
        hand_over_hashed(&pool, &done_count, &key_order, 1);
        hand_over(&pool, &done_count, 0);
        hand_over_hashed(&pool, &done_count, &key_order, 2);
        done_count.wait_for(4);
    });
}

#[test]
fn piece_that_waits_for_its_key_is_overtaken_and_gets_no_worker() {
    model::check(2, || {
        let (pool, done_count, key_order) = (IoWq::with_limits([8, 1]), DoneCount::new(), KeyOrder::new());
        let number = pool.number();
        let first =
            ModelWork { done_count: Arc::clone(&done_count), after: 1, announces: false, key_order: Some((Arc::clone(&key_order), 0)) };
        assert!(pool.enqueue(Account::Bound, Some(HashKey::new(7)), number, first).is_ok());
        hand_over_hashed(&pool, &done_count, &key_order, 1);
        hand_over_hashed(&pool, &done_count, &key_order, 2);
        hand_over(&pool, &done_count, 0);
        done_count.wait_for(4);
        assert!(pool.state.lock().counts[0].workers <= 2);
    });
}

#[test]
fn cancelled_piece_releases_its_key() {
    model::check(2, || {
        let (pool, done_count, key_order) = (IoWq::with_limits([1, 1]), DoneCount::new(), KeyOrder::new());
        hand_over_hashed(&pool, &done_count, &key_order, 0);
        let second = hand_over_hashed(&pool, &done_count, &KeyOrder::new(), 0);
        hand_over_hashed(&pool, &done_count, &KeyOrder::new(), 0);
        if let Cancelled::Queued(piece) = pool.cancel(second, MayStart::Yes) {
            drop(piece);
            done_count.add();
        }
        done_count.wait_for(3);
    });
}

#[test]
fn full_class_does_not_hold_up_the_other() {
    model::check(2, || {
        let (pool, done_count) = (IoWq::with_limits([1, 1]), DoneCount::new());
        hand_over(&pool, &done_count, 1);
        let number = pool.number();
        let piece = ModelWork { done_count: Arc::clone(&done_count), after: 0, announces: false, key_order: None };
        assert!(pool.enqueue(Account::Unbound, None, number, piece).is_ok());
        done_count.wait_for(2);
    });
}

#[test]
fn higher_limit_takes_effect_at_once() {
    model::check(2, || {
        let (pool, done_count) = (IoWq::with_limits([1, 1]), DoneCount::new());
        hand_over(&pool, &done_count, 1);
        hand_over(&pool, &done_count, 0);
        assert_eq!(pool.set_max_workers([2, 0], MayStart::Yes), [1, 1]);
        done_count.wait_for(2);
    });
}

#[test]
fn lower_limit_is_kept() {
    model::check(2, || {
        let (pool, done_count) = (IoWq::with_limits([2, 1]), DoneCount::new());
        hand_over(&pool, &done_count, 0);
        hand_over(&pool, &done_count, 0);
        pool.set_max_workers([1, 0], MayStart::Yes);
        done_count.wait_for(2);
        hand_over(&pool, &done_count, 0);
        done_count.wait_for(3);
    });
}

/// The piece blocks until it is interrupted, as a blocking call does.
#[test]
fn cancelled_piece_does_not_begin_or_is_interrupted_until_it_ends() {
    model::check(4, || {
        let interrupts = Arc::new(InterruptGuard::new());
        let worker = thread::spawn({
            let interrupts = Arc::clone(&interrupts);
            move || {
                let blocked = interrupts.run(|| {
                    while model::alarms() == 0 {
                        thread::yield_now();
                    }
                });
                assert_eq!(model::alarms(), 0);
                blocked.is_some()
            }
        });
        interrupts.cancel(1);
        // Cancelled again, also after its end: no other piece is interrupted.
        interrupts.cancel(1);
        worker.join().unwrap();
        assert_eq!(model::alarms(), 0);
        interrupts.cancel(1);
        assert_eq!(model::alarms(), 0);
    });
}
