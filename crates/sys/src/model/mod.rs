//! The kernel's side of a model: futexes, eventfds, epoll sets, threads and the clock, as loom can see them.
//!
//! Only with `--cfg loom`. The modules beside this one stand in for those of the same names one folder up; the rest of
//! the crate, and the engine on it, is what users run.
//!
//! Time stands still until the model moves it ([`advance_to`]): then every wait whose deadline has come ends. When a
//! model is done, every wait with a deadline ends, and threads that wait for events end there, quietly. Whoever sleeps
//! on a futex with no deadline and is never woken is loom's to report, as a deadlock.

pub(crate) mod event_table;
mod program;
mod raw_lock;
mod sleep;

/// What picks the orders in which a model's threads go on: loom, all of them within bounds; or, with `--cfg shuttle`
/// besides, shuttle.
#[cfg(not(shuttle))]
pub use loom as checker;
#[cfg(shuttle)]
pub use shuttle as checker;

pub use program::ModelProgram;
pub use raw_lock::RawLock;
pub(crate) use sleep::Sleep;

use checker::sync::{Condvar, Mutex};
use event_table::EventTable;
use std::sync::Arc;
use std::vec::Vec;

checker::lazy_static! {
    static ref KERNEL: Mutex<Kernel> = Mutex::new(Kernel::default());
}

/// Runs a model with orders of its threads' steps that shuttle picks at random, and that its seed repeats: for what has
/// too many of them for [`check`].
#[cfg(shuttle)]
pub fn check_at_random(iterations: usize, model: impl Fn() + Sync + Send + 'static) {
    shuttle::check_random(move || finish(&model), iterations);
}

/// As [`check_at_random`]: shuttle does not count preemptions.
#[cfg(shuttle)]
pub fn check(_preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    check_at_random(10_000, model);
}

/// Runs a model with every order of its threads' steps in which at most `preemptions` of them are preempted.
///
/// `LOOM_MAX_PREEMPTIONS` overrides the number.
#[cfg(not(shuttle))]
pub fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(preemptions);
    builder.max_branches = 10_000;
    builder.check(move || finish(&model));
}

fn finish(model: impl Fn()) {
    model();
    end();
    join_threads();
}

/// Waits for the end of the engine's threads.
pub fn join_threads() {
    while let Some(thread) = with(|kernel| kernel.threads.pop()) {
        thread.join().unwrap();
    }
}

/// What a thread sleeps on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum On {
    /// The address of a futex.
    Futex(usize),
    /// The number of an epoll set.
    Epoll(i32),
}

/// How a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awake {
    Woken,
    TimedOut,
    Ended,
}

/// A place in a queue. A thread may have several, with one bed.
#[derive(Debug)]
struct Sleeper {
    on: On,
    mask: u32,
    deadline_ns: u64,
    /// Which of the thread's places it is.
    nth: usize,
    bed: Arc<Bed>,
}

#[derive(Debug)]
struct Bed {
    condvar: Condvar,
    is_interruptible: bool,
    end: std::sync::Mutex<Option<(Awake, usize)>>,
}

impl Bed {
    fn new(is_interruptible: bool) -> Arc<Self> {
        Arc::new(Self { condvar: Condvar::new(), is_interruptible, end: std::sync::Mutex::new(None) })
    }

    /// How it ended, and at which of its places.
    fn end(&self) -> Option<(Awake, usize)> {
        *self.end.lock().unwrap()
    }
}

/// All that threads share through system calls.
#[derive(Debug, Default)]
pub(crate) struct Kernel {
    now_ns: u64,
    is_over: bool,
    sleepers: Vec<Sleeper>,
    threads: Vec<checker::thread::JoinHandle<()>>,
    /// Threads that are interrupted again and again.
    pub(crate) alarms: u32,
    pub(crate) events: EventTable,
}

impl Kernel {
    /// Wakes up to `n` of those that sleep on it, the oldest first.
    pub(crate) fn wake(&mut self, on: On, n: u32) {
        self.wake_masked(on, n, u32::MAX);
    }

    /// Of those that sleep with a bit of `mask`; how many.
    pub(crate) fn wake_masked(&mut self, on: On, n: u32, mask: u32) -> usize {
        let mut left = n;
        self.rouse(Awake::Woken, |sleeper| {
            let is_meant = sleeper.on == on && sleeper.mask & mask != 0 && left > 0;
            left -= u32::from(is_meant);
            is_meant
        });
        (n - left) as usize
    }

    fn rouse(&mut self, why: Awake, mut is_meant: impl FnMut(&Sleeper) -> bool) {
        self.sleepers.retain(|sleeper| {
            let is_meant = is_meant(sleeper);
            if is_meant {
                let mut end = sleeper.bed.end.lock().unwrap();
                *end = Some((why, end.map_or(sleeper.nth, |(_, nth)| nth.max(sleeper.nth))));
                sleeper.bed.condvar.notify_one();
            }
            !is_meant
        });
    }
}

/// Runs `f` in the kernel. It must not block.
pub(crate) fn with<R>(f: impl FnOnce(&mut Kernel) -> R) -> R {
    f(&mut KERNEL.lock().unwrap())
}

/// Sleeps, unless `check` has an answer. What it looks at cannot change between its look and the sleep.
pub(crate) fn sleep_unless<R>(on: On, deadline_ns: u64, mut check: impl FnMut(&mut Kernel) -> Option<R>) -> Result<R, Awake> {
    let mut kernel = KERNEL.lock().unwrap();
    if let Some(answer) = check(&mut kernel) {
        return Ok(answer);
    }
    if kernel.is_over && matches!(on, On::Epoll(_)) {
        return Err(Awake::Ended);
    }
    if kernel.now_ns >= deadline_ns {
        return Err(Awake::TimedOut);
    }
    let bed = Bed::new(false);
    kernel.sleepers.push(Sleeper { on, mask: u32::MAX, deadline_ns, nth: 0, bed: Arc::clone(&bed) });
    loop {
        kernel = bed.condvar.wait(kernel).unwrap();
        if let Some((why, _)) = bed.end() {
            return Err(why);
        }
    }
}

pub(crate) fn adopt(thread: checker::thread::JoinHandle<()>) {
    with(|kernel| kernel.threads.push(thread));
}

/// Whether an eventfd of the model's is readable; `None` for any other number.
pub(crate) fn poll(number: i32) -> Option<bool> {
    with(|kernel| kernel.events.bell(number))
}

/// How a thread ends whose model is over.
pub(crate) struct Over;

/// The model's time.
#[must_use]
pub fn monotonic_ns() -> u64 {
    with(|kernel| kernel.now_ns)
}

/// Others get their turn.
pub fn yield_now() {
    checker::thread::yield_now();
}

/// A thread that looks again later: others get their turn.
pub fn sleep_ns(_ns: u64) {
    yield_now();
}

/// Time goes on: waits whose deadline has come end.
pub fn advance_to(now_ns: u64) {
    with(|kernel| {
        kernel.now_ns = now_ns;
        kernel.rouse(Awake::TimedOut, |sleeper| sleeper.deadline_ns <= now_ns);
    });
}

/// How many threads are interrupted again and again.
#[must_use]
pub fn alarms() -> u32 {
    with(|kernel| kernel.alarms)
}

fn end() {
    advance_to(u64::MAX - 1);
    with(|kernel| {
        kernel.is_over = true;
        kernel.rouse(Awake::Ended, |sleeper| matches!(sleeper.on, On::Epoll(_)));
    });
}
