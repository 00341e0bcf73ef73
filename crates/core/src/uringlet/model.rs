//! The loop of the workers with a modelled ring, submitters and a canceller: each item is done
//! exactly once, whichever worker blocks. A lost hand-off leaves an item undone for ever, which
//! loom reports as a deadlock.
//!
//! The loop, the steps and the queue are the engine's own. The model has the ring: its lock, its
//! table of requests, its generation and its worker pool.

use super::run_queue::{OFFER_TIMEOUT_TICKS, RunEnd, RunQueue};
use super::step::{Host, run_queued, wake};
use super::worker_loop::{RunQueueWorker, work};
use super::workers::WorkerRole;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use uringlet_sys::Errno;
use uringlet_sys::lock::{Mutex, MutexGuard, futex_wait, futex_wake};
use uringlet_sys::model;
use uringlet_sys::model::checker::thread;
use uringlet_sys::sync::AtomicU32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ItemState {
    New,
    Queued,
    Running,
    Done,
    Cancelled,
}

/// How many first items block, and until how many items are over.
#[derive(Clone, Copy, Debug)]
struct Slow {
    items: u32,
    until_over: u32,
}

#[derive(Debug)]
struct ModelState {
    generation: u32,
    queue: RunQueue<u32>,
    table: Vec<ItemState>,
    /// The file of each item.
    files: Vec<Option<i32>>,
    /// A monitor's pause outlasts an offer.
    now_ticks: u64,
    runners_started: u32,
    monitors_started: u32,
}

/// What is shared without the lock.
#[derive(Debug)]
struct Signals {
    event_seq: AtomicU32,
    /// Counts started workers, and the end.
    starts: AtomicU32,
    /// Items that are over.
    over: AtomicU32,
    is_ending: AtomicU32,
}

#[derive(Debug)]
struct ModelRing {
    items: u32,
    slow: Slow,
    state: Mutex<ModelState>,
    signals: Signals,
}

/// The ring, locked.
struct Locked<'r> {
    ring: &'r ModelRing,
    state: MutexGuard<'r, ModelState>,
}

/// A worker at a ring of this generation.
struct ModelWorker<'r> {
    ring: &'r ModelRing,
    generation: u32,
}

#[derive(Debug)]
struct ModelHost<'r>(core::marker::PhantomData<&'r ()>);

impl<'r> Host for ModelHost<'r> {
    type Guard = Locked<'r>;
    type Id = u32;
    type Op = u32;
    type Outcome = ();

    fn queue<'g>(guard: &'g mut Locked<'r>) -> &'g mut RunQueue<u32> {
        &mut guard.state.queue
    }

    fn now_ticks(guard: &Locked<'r>) -> u64 {
        guard.state.now_ticks
    }

    fn notify_spinner(guard: &Locked<'r>) {
        guard.ring.signals.event_seq.fetch_add(1, Release);
    }

    fn start(guard: &mut Locked<'r>, role: WorkerRole) -> Result<(), Errno> {
        match role {
            WorkerRole::Runner => guard.state.runners_started += 1,
            WorkerRole::Monitor => guard.state.monitors_started += 1,
        }
        let starts = &guard.ring.signals.starts;
        starts.fetch_add(1, Release);
        futex_wake(starts, u32::MAX);
        Ok(())
    }

    fn file_of(guard: &mut Locked<'r>, id: u32) -> Option<Option<i32>> {
        let state = guard.state.table[id as usize];
        matches!(state, ItemState::Queued | ItemState::Running).then(|| guard.state.files[id as usize])
    }

    fn take_op(guard: &mut Locked<'r>, id: u32, _: u32) -> Option<u32> {
        let state = core::mem::replace(&mut guard.state.table[id as usize], ItemState::Running);
        assert_eq!(state, ItemState::Queued, "run twice");
        if let Some(file) = guard.state.files[id as usize] {
            let mut earlier = guard.state.files[..id as usize].iter().zip(&guard.state.table);
            assert!(!earlier.any(|(&other, &state)| other == Some(file) && state == ItemState::Running), "overtaken");
        }
        Some(id)
    }

    fn run_unlocked(guard: &mut Locked<'r>, op: &mut u32) {
        let unlocked = MutexGuard::unlock(&mut guard.state);
        guard.ring.run(*op);
        unlocked.relock();
    }

    fn complete(guard: &mut Locked<'r>, id: u32, _: u32, (): (), _: Option<(i32, u64)>) {
        let state = core::mem::replace(&mut guard.state.table[id as usize], ItemState::Done);
        assert_eq!(state, ItemState::Running, "completed twice");
        guard.ring.note_over();
    }

    fn note_blocked(_: &mut Locked<'r>, _: i32) {}
}

impl<'r> RunQueueWorker for ModelWorker<'r> {
    type Host = ModelHost<'r>;
    type Exit = ();

    fn lock(&self) -> Option<Locked<'r>> {
        Some(self.ring.lock()).filter(|guard| guard.state.generation == self.generation)
    }

    fn tid(&self) -> u32 {
        1
    }

    fn run(&self, op: &mut u32) {
        self.ring.run(*op);
    }

    fn note_run(&self, _: RunEnd) {}

    fn exit_action(guard: &mut Locked<'r>) {
        wake::<ModelHost<'r>>(guard);
    }

    fn exit(guard: Locked<'r>, (): ()) {
        drop(guard);
    }

    fn release(mut guard: Locked<'r>) {
        wake::<ModelHost<'r>>(&mut guard);
    }

    fn may_spin(&self, (): &()) -> bool {
        true
    }

    fn event_seq(&self) -> u32 {
        self.ring.signals.event_seq.load(Acquire)
    }

    /// One look instead of many.
    fn spin(&self, seen: u32) {
        let _ = self.event_seq() == seen;
    }

    fn pause(&self) {
        self.ring.state.lock().now_ticks += OFFER_TIMEOUT_TICKS + 1;
    }
}

impl ModelRing {
    fn new(items: u32, slow: u32) -> Arc<Self> {
        Self::with_files(&alloc::vec![None; items as usize], Slow { items: slow, until_over: items - slow })
    }

    fn with_files(files: &[Option<i32>], slow: Slow) -> Arc<Self> {
        let state = ModelState {
            generation: 0,
            queue: RunQueue::default(),
            table: alloc::vec![ItemState::New; files.len()],
            files: files.to_vec(),
            now_ticks: 0,
            runners_started: 0,
            monitors_started: 0,
        };
        let signals =
            Signals { event_seq: AtomicU32::new(0), starts: AtomicU32::new(0), over: AtomicU32::new(0), is_ending: AtomicU32::new(0) };
        Arc::new(Self { items: files.len() as u32, slow, state: Mutex::new(state), signals })
    }

    fn lock(&self) -> Locked<'_> {
        Locked { ring: self, state: self.state.lock() }
    }

    fn enqueue(&self, items: Range<u32>) {
        let mut guard = self.lock();
        for item in items {
            guard.state.table[item as usize] = ItemState::Queued;
            guard.state.queue.enqueue(item);
        }
        wake::<ModelHost<'_>>(&mut guard);
    }

    /// An item's op.
    fn run(&self, item: u32) {
        if item < self.slow.items {
            self.wait_until_over(self.slow.until_over);
        }
    }

    fn note_over(&self) {
        self.signals.over.fetch_add(1, AcqRel);
        futex_wake(&self.signals.over, u32::MAX);
    }

    fn wait_until_over(&self, n: u32) {
        loop {
            let seen = self.signals.over.load(Acquire);
            if seen >= n {
                return;
            }
            let _ = futex_wait(&self.signals.over, seen, u64::MAX);
        }
    }

    /// A thread of the pool: runs the tasks that are started, until the end.
    fn serve(&self) {
        loop {
            let seen = self.signals.starts.load(Acquire);
            let mut state = self.state.lock();
            let role = if state.runners_started > 0 {
                state.runners_started -= 1;
                WorkerRole::Runner
            } else if state.monitors_started > 0 {
                state.monitors_started -= 1;
                WorkerRole::Monitor
            } else if self.signals.is_ending.load(Acquire) == 1 {
                return;
            } else {
                drop(state);
                let _ = futex_wait(&self.signals.starts, seen, u64::MAX);
                continue;
            };
            let generation = state.generation;
            drop(state);
            work(&ModelWorker { ring: self, generation }, role);
        }
    }

    /// Cancels an item that no worker runs.
    fn cancel(&self, item: u32) {
        let mut state = self.state.lock();
        if state.table[item as usize] == ItemState::Queued {
            state.table[item as usize] = ItemState::Cancelled;
            drop(state);
            self.note_over();
        }
    }

    fn end(&self) {
        self.signals.is_ending.store(1, Release);
        self.signals.starts.fetch_add(1, Release);
        futex_wake(&self.signals.starts, u32::MAX);
    }
}

fn start(ring: &Arc<ModelRing>, workers: usize) -> Vec<thread::JoinHandle<()>> {
    (0..workers)
        .map(|_| {
            let ring = Arc::clone(ring);
            thread::spawn(move || ring.serve())
        })
        .collect()
}

fn finish(ring: &ModelRing, workers: Vec<thread::JoinHandle<()>>) {
    ring.end();
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    assert_eq!(ring.signals.over.load(Acquire), ring.items);
    let mut state = ring.state.lock();
    assert!(state.queue.is_empty());
    assert!(state.queue.take_baton().is_some(), "the baton was not released");
    assert!(state.table.iter().all(|state| matches!(state, ItemState::Done | ItemState::Cancelled)));
}

/// The first item blocks in the middle of a submission. Another worker does the rest, and the
/// blocked one finds its token void.
#[test]
fn a_blocked_worker_loses_the_baton() {
    model::check(2, || {
        let ring = ModelRing::new(3, 1);
        let workers = start(&ring, 2);
        ring.enqueue(0..3);
        ring.wait_until_over(3);
        finish(&ring, workers);
    });
}

#[test]
fn submissions_are_seen_while_the_queue_runs_empty_and_while_the_holder_blocks() {
    model::check(2, || {
        let ring = ModelRing::new(3, 1);
        let workers = start(&ring, 2);
        ring.enqueue(0..1);
        ring.enqueue(1..2);
        ring.enqueue(2..3);
        ring.wait_until_over(3);
        finish(&ring, workers);
    });
}

#[test]
fn an_item_that_is_cancelled_during_a_hand_off_ends_once() {
    model::check(2, || {
        let ring = ModelRing::new(3, 1);
        let workers = start(&ring, 2);
        ring.enqueue(0..3);
        ring.cancel(1);
        ring.wait_until_over(3);
        finish(&ring, workers);
    });
}

/// Items 0 and 1 write to the same file; 0 blocks until 2 is done.
#[test]
fn a_write_does_not_overtake_a_blocked_one_to_the_same_file() {
    model::check(2, || {
        let ring = ModelRing::with_files(&[Some(7), Some(7), None], Slow { items: 1, until_over: 1 });
        let workers = start(&ring, 2);
        ring.enqueue(0..3);
        ring.wait_until_over(3);
        finish(&ring, workers);
    });
}

/// A thread that has to wait for all items runs them itself.
#[test]
fn a_waiter_and_a_worker_share_the_queue() {
    model::check(2, || {
        let ring = ModelRing::new(2, 0);
        let workers = start(&ring, 1);
        ring.enqueue(0..2);
        {
            let mut guard = ring.lock();
            run_queued::<ModelHost<'_>>(&mut guard);
            wake::<ModelHost<'_>>(&mut guard);
        }
        ring.wait_until_over(2);
        finish(&ring, workers);
    });
}

/// The ring ends while a worker runs an item: the worker returns, and touches nothing.
#[test]
fn a_ring_may_end_during_a_hand_off() {
    model::check(2, || {
        let ring = ModelRing::new(3, 0);
        let workers = start(&ring, 2);
        ring.enqueue(1..3);
        {
            let mut state = ring.state.lock();
            state.generation += 1;
            state.queue = RunQueue::default();
            state.table.fill(ItemState::Cancelled);
            state.runners_started = 0;
            state.monitors_started = 0;
        }
        ring.end();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        let state = ring.state.lock();
        assert!(state.table.iter().all(|&state| state == ItemState::Cancelled));
    });
}

/// Many items, several of which block at the same time, submitted by several threads while others
/// are cancelled.
#[cfg(shuttle)]
#[test]
fn whole_pools_in_random_orders() {
    const ITEMS: u32 = 40;
    const WORKERS: usize = 5;
    model::check_at_random(2_000, || {
        let ring = ModelRing::new(ITEMS, WORKERS as u32 - 1);
        let workers = start(&ring, WORKERS);
        let submitters: Vec<_> = [0..13, 13..14, 14..ITEMS]
            .into_iter()
            .map(|items| {
                let ring = Arc::clone(&ring);
                thread::spawn(move || ring.enqueue(items))
            })
            .collect();
        (10..ITEMS).step_by(7).for_each(|item| ring.cancel(item));
        submitters.into_iter().for_each(|submitter| submitter.join().unwrap());
        ring.wait_until_over(ITEMS);
        finish(&ring, workers);
    });
}
