//! The line and the baton with workers, a submitter and a canceller: each item is done exactly once, whoever blocks; a
//! hand-over that is lost leaves an item waiting for ever, which loom reports as a deadlock.
//!
//! The ring is modelled by its lock, its table of requests and its generation; the workers' loop is that of `mod.rs`.

use crate::state::line::{Baton, Call, Line, OVERDUE_TICKS};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use uringlet_sys::lock::{Mutex, futex_wait, futex_wake};
use uringlet_sys::model;
use uringlet_sys::model::checker::thread;
use uringlet_sys::sync::AtomicU32;

/// Whoever looks after the holder comes when its loan is overdue.
const LATER: u64 = OVERDUE_TICKS + 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Nowhere,
    InLine,
    WithWorker,
    Done,
    Cancelled,
}

#[derive(Debug)]
struct State {
    generation: u32,
    line: Line<u32>,
    table: Vec<Place>,
    attendants_called: u32,
    standbys_called: u32,
}

#[derive(Debug)]
struct Ring {
    items: u32,
    /// So many, the first ones, block until all others are over.
    slow: u32,
    state: Mutex<State>,
    news: AtomicU32,
    /// Counts calls, and the end.
    bell: AtomicU32,
    /// Items that are dealt with.
    over: AtomicU32,
    is_ending: AtomicU32,
}

impl Ring {
    fn new(items: u32, slow: u32) -> Arc<Self> {
        let table = alloc::vec![Place::Nowhere; items as usize];
        let state = State { generation: 0, line: Line::default(), table, attendants_called: 0, standbys_called: 0 };
        Arc::new(Self {
            items,
            slow,
            state: Mutex::new(state),
            news: AtomicU32::new(0),
            bell: AtomicU32::new(0),
            over: AtomicU32::new(0),
            is_ending: AtomicU32::new(0),
        })
    }

    /// As `mod.rs` does it, under the lock.
    fn call(&self, state: &mut State) {
        match state.line.call(0) {
            Call::Nobody => return,
            Call::Spinner => {
                self.news.fetch_add(1, Release);
                return;
            }
            Call::Attendant => state.attendants_called += 1,
            Call::Standby => state.standbys_called += 1,
        }
        self.bell.fetch_add(1, Release);
        futex_wake(&self.bell, u32::MAX);
    }

    fn put_in_line(&self, items: core::ops::Range<u32>) {
        let mut state = self.state.lock();
        for item in items {
            state.table[item as usize] = Place::InLine;
            state.line.push(item);
        }
        self.call(&mut state);
    }

    fn deal_with(&self) {
        self.over.fetch_add(1, AcqRel);
        futex_wake(&self.over, u32::MAX);
    }

    fn wait_until_over(&self, n: u32) {
        loop {
            let seen = self.over.load(Acquire);
            if seen >= n {
                return;
            }
            let _ = futex_wait(&self.over, seen, u64::MAX);
        }
    }

    /// A worker's life: comes when called, until the end.
    fn work(&self) {
        loop {
            let seen = self.bell.load(Acquire);
            let mut state = self.state.lock();
            if state.attendants_called > 0 {
                state.attendants_called -= 1;
                state.line.answer_call();
                if let Some((baton, _)) = state.line.succeed(LATER) {
                    drop(state);
                    self.issue(baton);
                }
            } else if state.standbys_called > 0 {
                state.standbys_called -= 1;
                drop(state);
                self.look_once();
            } else if self.is_ending.load(Acquire) == 1 {
                return;
            } else {
                drop(state);
                let _ = futex_wait(&self.bell, seen, u64::MAX);
            }
        }
    }

    /// A standby looks, much later; then it goes, which it does in earnest only after many quiet looks.
    fn look_once(&self) {
        let mut state = self.state.lock();
        state.line.end_watch();
        if state.line.is_empty() {
            return;
        }
        match state.line.succeed(LATER) {
            Some((baton, _)) => {
                drop(state);
                self.issue(baton);
            }
            None => self.call(&mut state),
        }
    }

    /// Whoever has the baton issues until it is gone or nothing more comes.
    fn issue(&self, mut baton: Baton) {
        loop {
            let mut state = self.state.lock();
            let Some(item) = state.line.next(&mut baton) else {
                let _ = state.line.leave(baton);
                state.line.begin_spin();
                let seen = self.news.load(Acquire);
                drop(state);
                // One look instead of many.
                let _ = self.news.load(Acquire) == seen;
                let mut state = self.state.lock();
                state.line.end_spin();
                if state.line.is_empty() {
                    return;
                }
                match state.line.take() {
                    Some(again) => baton = again,
                    None => return self.call(&mut state),
                }
                continue;
            };
            if state.table[item as usize] != Place::InLine {
                drop(state);
                continue;
            }
            state.table[item as usize] = Place::WithWorker;
            let generation = state.generation;
            let loan = state.line.lend(baton, item, 0);
            self.call(&mut state);
            drop(state);
            if item < self.slow {
                self.wait_until_over(self.items - self.slow);
            }
            let mut state = self.state.lock();
            if state.generation != generation {
                return;
            }
            let back = state.line.take_back(loan);
            assert_eq!(state.table[item as usize], Place::WithWorker, "done twice");
            state.table[item as usize] = Place::Done;
            drop(state);
            self.deal_with();
            match back {
                Some(again) => baton = again,
                None => return self.call(&mut self.state.lock()),
            }
        }
    }

    /// Takes an item out if no worker has it.
    fn cancel(&self, item: u32) {
        let mut state = self.state.lock();
        if state.table[item as usize] == Place::InLine {
            state.table[item as usize] = Place::Cancelled;
            drop(state);
            self.deal_with();
        }
    }

    fn end(&self) {
        self.is_ending.store(1, Release);
        self.bell.fetch_add(1, Release);
        futex_wake(&self.bell, u32::MAX);
    }
}

fn start(ring: &Arc<Ring>, workers: usize) -> Vec<thread::JoinHandle<()>> {
    (0..workers)
        .map(|_| {
            let ring = Arc::clone(ring);
            thread::spawn(move || ring.work())
        })
        .collect()
}

fn finish(ring: &Ring, workers: Vec<thread::JoinHandle<()>>) {
    ring.end();
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    assert_eq!(ring.over.load(Acquire), ring.items);
    let mut state = ring.state.lock();
    assert!(state.line.is_empty());
    assert!(state.line.take().is_some(), "the baton was left");
    assert!(state.table.iter().all(|place| matches!(place, Place::Done | Place::Cancelled)));
}

/// The first one blocks, in the middle of a submission: whoever succeeds it does the rest, and it comes back to nothing.
#[test]
fn who_blocks_is_succeeded() {
    model::check(2, || {
        let ring = Ring::new(3, 1);
        let workers = start(&ring, 2);
        ring.put_in_line(0..3);
        ring.wait_until_over(3);
        finish(&ring, workers);
    });
}

/// New submissions come while the line runs empty, and while the holder blocks.
#[test]
fn what_comes_late_is_seen() {
    model::check(2, || {
        let ring = Ring::new(3, 1);
        let workers = start(&ring, 2);
        ring.put_in_line(0..1);
        ring.put_in_line(1..2);
        ring.put_in_line(2..3);
        ring.wait_until_over(3);
        finish(&ring, workers);
    });
}

/// What is in line behind a blocked holder is cancelled while the baton moves.
#[test]
fn a_cancel_during_a_hand_over_takes_an_item_once() {
    model::check(2, || {
        let ring = Ring::new(3, 1);
        let workers = start(&ring, 2);
        ring.put_in_line(0..3);
        ring.cancel(1);
        ring.wait_until_over(3);
        finish(&ring, workers);
    });
}

/// The ring ends while a worker is at an item: it comes back, and touches nothing.
#[test]
fn a_ring_may_end_during_a_hand_over() {
    model::check(2, || {
        let ring = Ring::new(3, 0);
        let workers = start(&ring, 2);
        ring.put_in_line(1..3);
        {
            let mut state = ring.state.lock();
            state.generation += 1;
            state.line = Line::default();
            state.table.fill(Place::Cancelled);
            state.attendants_called = 0;
            state.standbys_called = 0;
        }
        ring.end();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        let state = ring.state.lock();
        assert!(state.table.iter().all(|&place| place == Place::Cancelled));
    });
}

/// Many items, several of which block at the same time, put in line by several threads while others cancel.
#[cfg(shuttle)]
#[test]
fn whole_pools_at_random() {
    const ITEMS: u32 = 40;
    const WORKERS: usize = 5;
    model::check_at_random(2_000, || {
        let ring = Ring::new(ITEMS, WORKERS as u32 - 1);
        let workers = start(&ring, WORKERS);
        let submitters: Vec<_> = [0..13, 13..14, 14..ITEMS]
            .into_iter()
            .map(|items| {
                let ring = Arc::clone(&ring);
                thread::spawn(move || ring.put_in_line(items))
            })
            .collect();
        (10..ITEMS).step_by(7).for_each(|item| ring.cancel(item));
        submitters.into_iter().for_each(|submitter| submitter.join().unwrap());
        ring.wait_until_over(ITEMS);
        finish(&ring, workers);
    });
}
