//! The work: items that keep a worker busy for a moment, and gates that block workers.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use uringlet_core::io_wq::{Account, InterruptGuard, Work};
use uringlet_sys::clock::ticks;
use uringlet_sys::lock::{futex_wait, futex_wake};

/// Number of submitting threads.
pub(crate) const SUBMITTERS: usize = 2;

/// The account classes that get work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Classes {
    Bound,
    Unbound,
    Both,
}

impl Classes {
    pub(crate) fn of(name: &str) -> Option<Self> {
        [("bound", Self::Bound), ("unbound", Self::Unbound), ("both", Self::Both)].into_iter().find(|(n, _)| *n == name).map(|(_, c)| c)
    }

    /// The account that each submitter uses.
    pub(crate) fn accounts(self) -> [Account; SUBMITTERS] {
        match self {
            Self::Bound => [Account::Bound; 2],
            Self::Unbound => [Account::Unbound; 2],
            Self::Both => Account::BOTH,
        }
    }
}

/// Parameters and shared state of a run.
#[derive(Debug)]
pub(crate) struct PoolLoad {
    pub(crate) classes: Classes,
    pub(crate) workers: u32,
    work_ticks: u64,
    ticks_a_ns: f64,
    pub(crate) gate: WorkerGate,
    pub(crate) completions: [CompletionCount; SUBMITTERS],
}

/// Blocks workers until it is opened.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct WorkerGate {
    /// Number of times it was opened.
    opened: AtomicU32,
    kept: AtomicU32,
}

/// Completed items of one submitter, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct CompletionCount {
    done: AtomicU32,
    wanted: AtomicU32,
}

impl PoolLoad {
    pub(crate) fn new(classes: Classes, workers: u32, work_ns: u32) -> Self {
        let ticks_a_ns = ticks_a_ns();
        let work_ticks = (f64::from(work_ns) * ticks_a_ns) as u64;
        Self { classes, workers, work_ticks, ticks_a_ns, gate: WorkerGate::default(), completions: Default::default() }
    }

    /// Limit of workers in each class.
    pub(crate) fn limits(&self) -> [u32; 2] {
        [self.workers; 2]
    }

    /// Number of workers in all classes together.
    pub(crate) fn all_workers(&self) -> u32 {
        if self.classes == Classes::Both { 2 * self.workers } else { self.workers }
    }

    pub(crate) fn ticks_to_ns(&self, ticks: u64) -> f64 {
        ticks as f64 / self.ticks_a_ns
    }
}

fn ticks_a_ns() -> f64 {
    const TIME: Duration = Duration::from_millis(5);
    let (begun, from) = (Instant::now(), ticks());
    while begun.elapsed() < TIME {
        std::hint::spin_loop();
    }
    (ticks() - from) as f64 / begun.elapsed().as_nanos() as f64
}

impl WorkerGate {
    pub(crate) fn wait_until_kept(&self, n: u32) {
        wait_until(&self.kept, |kept| kept == n);
    }

    pub(crate) fn open(&self) {
        self.kept.store(0, SeqCst);
        self.opened.fetch_add(1, SeqCst);
        futex_wake(&self.opened, u32::MAX);
    }
}

impl CompletionCount {
    pub(crate) fn done(&self) -> u32 {
        self.done.load(SeqCst)
    }

    /// Sleeps until `n` items are complete.
    pub(crate) fn wait_for(&self, n: u32) {
        self.wanted.store(n, SeqCst);
        wait_until(&self.done, |done| done.wrapping_sub(n).cast_signed() >= 0);
    }

    fn add(&self) {
        let done = self.done.fetch_add(1, SeqCst).wrapping_add(1);
        if done == self.wanted.load(SeqCst) {
            futex_wake(&self.done, u32::MAX);
        }
    }
}

fn wait_until(word: &AtomicU32, is_so: impl Fn(u32) -> bool) {
    loop {
        let seen = word.load(SeqCst);
        if is_so(seen) {
            return;
        }
        let _ = futex_wait(word, seen, u64::MAX);
    }
}

/// A work item. It must not use thread-local storage, which workers lack.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BenchItem {
    /// Blocks its worker until the gate is opened once more.
    WorkerGate(&'static PoolLoad),
    /// Keeps its worker busy for `work_ticks`; counted for this submitter.
    Moment(&'static PoolLoad, usize),
}

impl Work for BenchItem {
    fn run(self, _: &InterruptGuard) {
        match self {
            Self::WorkerGate(load) => {
                let seen = load.gate.opened.load(SeqCst);
                load.gate.kept.fetch_add(1, SeqCst);
                futex_wake(&load.gate.kept, u32::MAX);
                wait_until(&load.gate.opened, |opened| opened != seen);
            }
            Self::Moment(load, submitter) => {
                let begun = ticks();
                while ticks().wrapping_sub(begun) < load.work_ticks {
                    std::hint::spin_loop();
                }
                load.completions[submitter].add();
            }
        }
    }
}

/// A unique number for an item.
pub(crate) fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, SeqCst)
}
