//! The three measured phases: inserting without workers, consuming without submitters, and both at
//! once.

use crate::load::{BenchItem, PoolLoad, SUBMITTERS, next_number};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};
use uringlet_core::io_wq::{Account, IoWq};
use uringlet_sys::lock::{LockWaits, TimedLock};

/// The interface of a measured pool.
pub(crate) trait BenchPool: Send + Sync {
    fn enqueue(&self, account: Account, number: u64, item: BenchItem);
    /// Wait statistics of all its locks.
    fn waits(&self) -> LockWaits;
}

/// The engine's pool.
#[derive(Debug)]
pub(crate) struct SplitLocks(Arc<IoWq<BenchItem, TimedLock>>);

impl SplitLocks {
    pub(crate) fn new(limits: [u32; 2]) -> Self {
        Self(IoWq::with_limits(limits))
    }
}

impl BenchPool for SplitLocks {
    fn enqueue(&self, account: Account, number: u64, item: BenchItem) {
        // All workers exist once the gates hold them, so nothing is handed back.
        let _ = self.0.enqueue(account, None, number, item);
    }

    fn waits(&self) -> LockWaits {
        let add =
            |a: LockWaits, b: LockWaits| LockWaits { taken: a.taken + b.taken, waited: a.waited + b.waited, ticks: a.ticks + b.ticks };
        self.0.waits().into_iter().fold(LockWaits::default(), add)
    }
}

/// Items that each submitter inserts before any is consumed.
const ITEMS: u32 = 20_000;
/// Repetitions, of which the median is taken.
const REPEATS: usize = 7;
/// Length of the phase with submitters and workers active.
const TIME: Duration = Duration::from_millis(60);
/// Items of a submitter in flight.
const DEPTH: u32 = 256;

/// Result of one repetition of a phase.
#[derive(Clone, Copy, Debug)]
struct PhaseResult {
    /// Million items per second.
    items: f64,
    /// Time that an item waited for locks, ns.
    wait_ns: f64,
}

pub(crate) fn run(pool: &impl BenchPool, load: PoolLoad) -> anyhow::Result<String> {
    // Workers refer to it until the process ends.
    let load: &'static PoolLoad = Box::leak(Box::new(load));
    let (mut inserts, mut consumes, mut flows) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..=REPEATS {
        let (insert, consume) = insert_then_consume(pool, load);
        inserts.push(insert);
        consumes.push(consume);
        flows.push(flow(pool, load));
    }
    // The first repetition grows the lists and starts threads.
    let fields = [("insert", &inserts[1..]), ("consume", &consumes[1..]), ("flow", &flows[1..])];
    let text = fields.map(|(name, rates)| {
        let items = median(rates.iter().map(|rate| rate.items));
        let wait = median(rates.iter().map(|rate| rate.wait_ns));
        format!("\"{name}\": {items:.4}, \"{name}_wait_ns\": {wait:.2}")
    });
    Ok(format!("{{{}}}", text.join(", ")))
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Measures `f`, which returns its number of items and its duration.
fn rate(pool: &impl BenchPool, load: &PoolLoad, f: impl FnOnce() -> (u32, Duration)) -> PhaseResult {
    let before = pool.waits().ticks;
    let (items, time) = f();
    let waited = load.ticks_to_ns(pool.waits().ticks - before);
    PhaseResult { items: f64::from(items) / time.as_secs_f64() / 1e6, wait_ns: waited / f64::from(items) }
}

/// Each submitter inserts while a gate blocks all workers; then the gate opens.
fn insert_then_consume(pool: &impl BenchPool, load: &'static PoolLoad) -> (PhaseResult, PhaseResult) {
    close_gates(pool, load);
    let before = load.completions.each_ref().map(|completion| completion.done());
    let insert = rate(pool, load, || {
        let times = on_each_submitter(
            |submitter, account| {
                let begun = Instant::now();
                for n in 0..u64::from(ITEMS) {
                    pool.enqueue(account, n + 1, BenchItem::Moment(load, submitter));
                }
                begun.elapsed()
            },
            load,
        );
        (ITEMS * SUBMITTERS as u32, times.into_iter().max().unwrap_or_default())
    });
    let consume = rate(pool, load, || {
        let begun = Instant::now();
        load.gate.open();
        for (completion, before) in load.completions.iter().zip(before) {
            completion.wait_for(before.wrapping_add(ITEMS));
        }
        (ITEMS * SUBMITTERS as u32, begun.elapsed())
    });
    (insert, consume)
}

fn close_gates(pool: &impl BenchPool, load: &'static PoolLoad) {
    let mut accounts = load.classes.accounts().to_vec();
    accounts.dedup();
    for &account in &accounts {
        for _ in 0..load.workers {
            pool.enqueue(account, next_number(), BenchItem::WorkerGate(load));
        }
    }
    load.gate.wait_until_kept(load.all_workers());
}

/// Each submitter inserts, and waits while it has too many items in flight.
fn flow(pool: &impl BenchPool, load: &'static PoolLoad) -> PhaseResult {
    rate(pool, load, || {
        let begun = Instant::now();
        let counts = on_each_submitter(
            |submitter, account| {
                let completion = &load.completions[submitter];
                let first = completion.done();
                let mut sent = first;
                while begun.elapsed() < TIME {
                    for _ in 0..DEPTH / 2 {
                        pool.enqueue(account, u64::from(sent) + 1, BenchItem::Moment(load, submitter));
                        sent = sent.wrapping_add(1);
                    }
                    completion.wait_for(sent.wrapping_sub(DEPTH / 2));
                }
                completion.wait_for(sent);
                sent.wrapping_sub(first)
            },
            load,
        );
        (counts.into_iter().sum(), begun.elapsed())
    })
}

/// Runs `f` on every submitter at once.
fn on_each_submitter<T: Send>(f: impl Fn(usize, Account) -> T + Sync, load: &PoolLoad) -> Vec<T> {
    let start = Barrier::new(SUBMITTERS);
    thread::scope(|scope| {
        let threads: Vec<_> = load
            .classes
            .accounts()
            .into_iter()
            .enumerate()
            .map(|(submitter, account)| {
                let (f, start) = (&f, &start);
                scope.spawn(move || {
                    start.wait();
                    f(submitter, account)
                })
            })
            .collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    })
}
