//! The kernel's side of a model: futexes, eventfds, epoll sets, threads and the clock, in terms
//! that loom can check.
//!
//! Only with `--cfg loom`. The files beside this one replace the modules of the same names one
//! folder up; the rest of the crate, and the engine on it, is the code that users run.
//!
//! Time stands still until the model advances it ([`advance_to`]), which ends every wait whose
//! deadline is reached. When a model is done, every wait with a deadline ends, and threads that
//! wait for events end. Loom reports a thread that sleeps on a futex without a deadline and is
//! never woken, as a deadlock.

pub(crate) mod event_table;
mod program;
mod raw_lock;
mod sleep;

/// The model checker, which picks the orders of the threads' steps: loom (all orders within
/// bounds), or shuttle (with `--cfg shuttle` as well).
#[cfg(not(shuttle))]
pub use loom as checker;
#[cfg(shuttle)]
pub use shuttle as checker;

pub use program::ModelProgram;
pub use raw_lock::RawLock;
pub(crate) use sleep::Sleep;

use checker::sync::{Condvar, Mutex};
use event_table::EventTable;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::vec::Vec;

checker::lazy_static! {
    static ref KERNEL: Mutex<Kernel> = Mutex::new(Kernel::default());
}

/// Runs a model with orders of its threads' steps that shuttle picks at random and can repeat from
/// their seed: for models with too many orders for [`check`].
#[cfg(shuttle)]
pub fn check_at_random(iterations: usize, model: impl Fn() + Sync + Send + 'static) {
    shuttle::check_random(move || finish(&model), iterations);
}

/// As [`check_at_random`]: shuttle does not count preemptions.
#[cfg(shuttle)]
pub fn check(_preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    check_at_random(10_000, model);
}

/// Runs a model with every order of its threads' steps in which at most `preemptions` of them are
/// preempted.
///
/// `LOOM_MAX_PREEMPTIONS` overrides the number.
#[cfg(not(shuttle))]
pub fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let _beside_others = RUNNING.read();
    check_all(preemptions, model);
}

/// As [`check`], while no other model of this process runs: for models that depend on which numbers
/// the kernel gives to descriptors, and on the engine's table of them, both of which models share.
#[cfg(not(shuttle))]
pub fn check_alone(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let _alone = RUNNING.write();
    check_all(preemptions, model);
}

#[cfg(not(shuttle))]
static RUNNING: std::sync::RwLock<()> = std::sync::RwLock::new(());

#[cfg(not(shuttle))]
fn check_all(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
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

/// An entry in a queue. A thread may have several, with one [`Parker`].
#[derive(Debug)]
struct Sleeper {
    on: On,
    mask: u32,
    deadline_ns: u64,
    /// Which of the thread's entries it is.
    nth: usize,
    parker: Arc<Parker>,
}

#[derive(Debug)]
struct Parker {
    condvar: Condvar,
    is_interruptible: bool,
    is_disturbed: std::sync::Mutex<bool>,
    end: std::sync::Mutex<Option<(Awake, usize)>>,
}

impl Parker {
    fn new(is_interruptible: bool) -> Arc<Self> {
        Arc::new(Self {
            condvar: Condvar::new(),
            is_interruptible,
            is_disturbed: std::sync::Mutex::new(false),
            end: std::sync::Mutex::new(None),
        })
    }

    /// How the sleep ended, and at which of its entries.
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
    /// Threads with a running interrupt timer.
    pub(crate) alarms: u32,
    pub(crate) events: EventTable,
    /// Threads that sleep in a system call, by the numbers that the engine knows them by.
    pub(crate) calls: BTreeSet<u32>,
}

impl Kernel {
    /// Unblocks up to `n` sleepers of `on`, the oldest first.
    pub(crate) fn wake(&mut self, on: On, n: u32) {
        self.wake_masked(on, n, u32::MAX);
    }

    /// As [`wake`](Self::wake), only sleepers that share a bit with `mask`. Returns how many.
    pub(crate) fn wake_masked(&mut self, on: On, n: u32, mask: u32) -> usize {
        let mut left = n;
        self.end_sleeps(Awake::Woken, |sleeper| {
            let is_meant = sleeper.on == on && sleeper.mask & mask != 0 && left > 0;
            left -= u32::from(is_meant);
            is_meant
        });
        (n - left) as usize
    }

    fn end_sleeps(&mut self, why: Awake, mut is_meant: impl FnMut(&Sleeper) -> bool) {
        self.sleepers.retain(|sleeper| {
            let is_meant = is_meant(sleeper);
            if is_meant {
                let mut end = sleeper.parker.end.lock().unwrap();
                *end = Some((why, end.map_or(sleeper.nth, |(_, nth)| nth.max(sleeper.nth))));
                sleeper.parker.condvar.notify_one();
            }
            !is_meant
        });
    }
}

/// Runs `f` in the model's kernel. It must not block.
pub(crate) fn with<R>(f: impl FnOnce(&mut Kernel) -> R) -> R {
    f(&mut KERNEL.lock().unwrap())
}

/// Sleeps, unless `check` returns a value. The model's kernel is locked from the check to the
/// sleep.
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
    let parker = Parker::new(false);
    kernel.sleepers.push(Sleeper { on, mask: u32::MAX, deadline_ns, nth: 0, parker: Arc::clone(&parker) });
    loop {
        kernel = parker.condvar.wait(kernel).unwrap();
        if let Some((why, _)) = parker.end() {
            return Err(why);
        }
    }
}

pub(crate) fn adopt(thread: checker::thread::JoinHandle<()>) {
    with(|kernel| kernel.threads.push(thread));
}

/// Whether an eventfd of the model's is readable; `None` for any other number.
pub(crate) fn poll(number: i32) -> Option<bool> {
    with(|kernel| kernel.events.is_readable(number))
}

/// Reads one signal of an eventfd of the model's, as `EFD_SEMAPHORE` has it. `false`: there is
/// none.
#[must_use]
pub fn read_eventfd(number: i32) -> bool {
    with(|kernel| kernel.events.read_eventfd(number))
}

/// Payload of the panic that ends a thread when its model is over.
pub(crate) struct Over;

/// The model's time.
#[must_use]
pub fn monotonic_ns() -> u64 {
    with(|kernel| kernel.now_ns)
}

/// Lets other threads run.
pub fn yield_now() {
    checker::thread::yield_now();
}

/// The checker may run another thread here.
pub fn switch_point() {
    drop(KERNEL.lock().unwrap());
}

/// A thread that retries later: lets other threads run.
pub fn sleep_ns(_ns: u64) {
    yield_now();
}

/// Advances time: ends waits whose deadline is reached.
pub fn advance_to(now_ns: u64) {
    with(|kernel| {
        kernel.now_ns = now_ns;
        for timer in kernel.events.take_expired(now_ns) {
            kernel.signal(timer);
        }
        kernel.end_sleeps(Awake::TimedOut, |sleeper| sleeper.deadline_ns <= now_ns);
    });
}

/// Wakes the threads that wait for futexes of the program's, for no reason, as the kernel may.
pub fn wake_spuriously() {
    with(|kernel| kernel.disturb());
}

/// Number of threads with a running interrupt timer.
#[must_use]
pub fn alarms() -> u32 {
    with(|kernel| kernel.alarms)
}

fn end() {
    advance_to(u64::MAX - 1);
    with(|kernel| {
        kernel.is_over = true;
        kernel.end_sleeps(Awake::Ended, |sleeper| matches!(sleeper.on, On::Epoll(_)));
    });
}
