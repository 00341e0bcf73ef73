//! Whole pools: two submitters, which may also be threads that start no worker, both classes, keys,
//! cancels, limits that change, hundreds of steps. Every piece runs once or comes back from a
//! cancel; pieces of a key that are not cancelled run one at a time and in order; no class has more
//! workers than its limit. A thread that is never woken is a deadlock, which shuttle reports with
//! the seed that repeats it.

use super::*;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use uringlet_sys::lock::{futex_wait, futex_wake};
use uringlet_sys::model::{self, checker::rand::Rng, checker::thread};
use uringlet_sys::sync::{AtomicBool, AtomicU32};

const KEYS: usize = 3;
const PIECES: u32 = 24;
const MOST: u32 = 3;

#[derive(Debug)]
struct Totals {
    /// Pieces that ran or came back.
    ended: AtomicU32,
    keys: [KeyState; KEYS],
    /// Pieces that run, by class.
    running: [AtomicU32; 2],
}

#[derive(Debug)]
struct KeyState {
    is_taken: AtomicBool,
    last: AtomicU32,
}

impl Totals {
    fn new() -> Arc<Self> {
        let key = || KeyState { is_taken: AtomicBool::new(false), last: AtomicU32::new(0) };
        Arc::new(Self { ended: AtomicU32::new(0), keys: [key(), key(), key()], running: [AtomicU32::new(0), AtomicU32::new(0)] })
    }

    fn end_one(&self) {
        self.ended.fetch_add(1, AcqRel);
        futex_wake(&self.ended, u32::MAX);
    }

    fn wait_for(&self, n: u32) {
        loop {
            let seen = self.ended.load(Acquire);
            if seen >= n {
                return;
            }
            let _ = futex_wait(&self.ended, seen, u64::MAX);
        }
    }
}

struct RandomWork {
    totals: Arc<Totals>,
    account: Account,
    /// The key, and the piece's position among the submitter's pieces.
    key: Option<(usize, u32)>,
    pauses: u32,
}

impl Work for RandomWork {
    fn run(self, interrupts: &InterruptGuard) {
        let running = &self.totals.running[self.account as usize];
        assert!(running.fetch_add(1, AcqRel) < MOST);
        let _ = interrupts.run(|| {
            if let Some((key, nth)) = self.key {
                let key = &self.totals.keys[key];
                assert!(!key.is_taken.swap(true, AcqRel));
                assert!(key.last.swap(nth, AcqRel) < nth);
                self.pause();
                key.is_taken.store(false, Release);
            } else {
                self.pause();
            }
        });
        running.fetch_sub(1, AcqRel);
        self.totals.end_one();
    }
}

impl RandomWork {
    fn pause(&self) {
        (0..self.pauses).for_each(|_| thread::yield_now());
    }
}

/// One submitter, which cancels some of its own pieces. No other submitter uses its keys.
fn submit(pool: &Arc<IoWq<RandomWork>>, totals: &Arc<Totals>, keys: core::ops::Range<usize>) {
    let mut rng = model::checker::rand::thread_rng();
    for nth in 1..=PIECES {
        let key = rng.gen_bool(0.6).then(|| (rng.gen_range(keys.clone()), nth));
        // A key is always of the same class, as an inode is.
        let account = match key {
            Some((key, _)) => Account::BOTH[key % 2],
            None => Account::BOTH[rng.gen_range(0..2)],
        };
        let number = pool.number();
        let piece = RandomWork { totals: Arc::clone(totals), account, key, pauses: rng.gen_range(0..3) };
        let key = key.map(|(key, _)| HashKey::new(key as u64));
        if rng.gen_bool(0.8) {
            assert!(pool.enqueue(account, key, number, piece).is_ok());
        } else if !pool.enqueue_only(account, key, number, piece) {
            assert!(pool.start_missing().is_ok());
        }
        if rng.gen_bool(0.2)
            && let Cancelled::Queued(piece) = pool.cancel(number, MayStart::Yes)
        {
            piece.totals.end_one();
        }
    }
}

#[test]
fn every_piece_ends_once() {
    model::check_at_random(2_000, || {
        let (pool, totals) = (IoWq::with_limits([MOST, MOST - 1]), Totals::new());
        let other = thread::spawn({
            let (pool, totals) = (Arc::clone(&pool), Arc::clone(&totals));
            move || submit(&pool, &totals, 2..KEYS)
        });
        submit(&pool, &totals, 0..2);
        other.join().unwrap();
        totals.wait_for(2 * PIECES);
        model::advance_to(2 * worker_loop::IDLE_NS);
        pool.shut_down();
        model::join_threads();
        assert_eq!(totals.ended.load(Acquire), 2 * PIECES);
    });
}

#[test]
fn every_piece_ends_once_while_limits_change_and_workers_are_kept() {
    model::check_at_random(2_000, || {
        let (pool, totals) = (IoWq::with_limits([MOST; 2]), Totals::new());
        let other = thread::spawn({
            let (pool, totals) = (Arc::clone(&pool), Arc::clone(&totals));
            move || submit(&pool, &totals, 0..KEYS)
        });
        let mut rng = model::checker::rand::thread_rng();
        for step in 1..=6 {
            if rng.gen_bool(0.5) {
                pool.set_max_workers([rng.gen_range(0..=MOST), rng.gen_range(0..=MOST)], MayStart::Yes);
            } else {
                pool.keep_worker(Account::BOTH[rng.gen_range(0..2)]);
            }
            model::advance_to(step * worker_loop::IDLE_NS);
            thread::yield_now();
        }
        other.join().unwrap();
        totals.wait_for(PIECES);
    });
}
