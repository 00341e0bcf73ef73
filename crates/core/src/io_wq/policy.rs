//! When a worker is woken, started and let go: a class' part of what the pool lock guards. Pure.

use alloc::vec::Vec;

/// After a failed start no other is tried for this long while there are other workers, ns.
const RETRY_NS: u64 = 10_000_000;

/// A bit of [`WorkerCounts::signal`]: a worker could come for ready work, and none is on its way.
pub const CAN_WAKE: u32 = 1;
/// A bit of [`WorkerCounts::signal`]: there are more workers than the limit.
pub const OVER_LIMIT: u32 = 2;

/// How a worker comes for ready work.
#[derive(Debug, PartialEq, Eq)]
pub enum WakeAction<T> {
    /// A worker is on its way; or all are busy, and the limit is reached.
    Nothing,
    /// Wake this idle worker, which is idle no longer.
    Wake(T),
    /// Start a worker: [`WorkerCounts::started`] or [`WorkerCounts::start_failed`] is next.
    Start,
}

/// Why a worker exits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// There are more workers than the limit.
    OverLimit,
    /// There was no work for long, or the pool is shut down.
    Idle,
}

/// Workers of a class.
#[derive(Debug)]
pub struct WorkerCounts<T> {
    /// All: idle, busy, on their way.
    pub workers: u32,
    /// The limit; 0: the pool is shut down.
    pub max_workers: u32,
    /// Workers that were woken or started and have not found work yet.
    searching: u32,
    /// The idle workers. The last one in is the first one out, so that in quiet times the others
    /// exit.
    free: Vec<T>,
    /// A start failed: none is tried before this time.
    retry_at_ns: Option<u64>,
}

impl<T> WorkerCounts<T> {
    /// No workers yet.
    #[must_use]
    pub const fn new(max_workers: u32) -> Self {
        Self { workers: 0, max_workers, searching: 0, free: Vec::new(), retry_at_ns: None }
    }

    /// Even a pool that is shut down runs the work it has.
    fn limit(&self) -> u32 {
        self.max_workers.max(1)
    }

    /// The bits that are read without the pool lock.
    #[must_use]
    pub fn signal(&self) -> u32 {
        let has_capacity = !self.free.is_empty() || self.workers < self.limit();
        let can_wake = if self.searching == 0 && has_capacity { CAN_WAKE } else { 0 };
        let over_limit = if self.workers > self.limit() { OVER_LIMIT } else { 0 };
        can_wake | over_limit
    }

    /// How many workers could find work while the busy ones stay busy.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.searching + self.free.len() as u32 + self.limit().saturating_sub(self.workers)
    }

    /// There is ready work: how a worker comes for it.
    pub fn wake_action(&mut self, now_ns: impl Fn() -> u64) -> WakeAction<T> {
        if self.searching > 0 {
            return WakeAction::Nothing;
        }
        if let Some(worker) = self.free.pop() {
            self.searching += 1;
            return WakeAction::Wake(worker);
        }
        let is_too_soon = self.workers > 0 && self.retry_at_ns.is_some_and(|at| now_ns() < at);
        if self.workers >= self.limit() || is_too_soon { WakeAction::Nothing } else { WakeAction::Start }
    }

    /// A worker was started.
    pub const fn started(&mut self) {
        self.workers += 1;
        self.searching += 1;
        self.retry_at_ns = None;
    }

    /// No worker could be started.
    pub const fn start_failed(&mut self, now_ns: u64) {
        self.retry_at_ns = Some(now_ns + RETRY_NS);
    }

    /// A worker that was woken or started has found work, or that there is none.
    pub const fn stop_searching(&mut self) {
        self.searching -= 1;
    }

    /// A worker without work joins the idle ones. `false`: it must exit instead.
    pub fn park(&mut self, worker: T) -> bool {
        let is_wanted = self.max_workers > 0 && self.workers <= self.max_workers;
        if is_wanted {
            self.free.push(worker);
        }
        is_wanted
    }

    /// Takes a worker out of the idle ones. `false`: it was woken already.
    pub fn unpark(&mut self, is_it: impl Fn(&T) -> bool) -> bool {
        let at = self.free.iter().position(is_it);
        at.map(|at| self.free.remove(at)).is_some()
    }

    /// Whether a worker may exit; it does. So many idle ones stay, unless the pool is shut down.
    pub fn try_exit(&mut self, reason: ExitReason, kept: u32) -> bool {
        let exits = match reason {
            ExitReason::OverLimit => self.workers > self.limit(),
            ExitReason::Idle => self.workers > kept || self.max_workers == 0,
        };
        self.workers -= u32::from(exits);
        exits
    }

    /// Whether a worker that exits must stay, since it is the last one.
    pub const fn rejoin(&mut self) -> bool {
        let is_last = self.workers == 0;
        if is_last {
            self.workers = 1;
        }
        is_last
    }

    /// Sets the limit, unless `new` is 0; returns the old one.
    pub fn set_limit(&mut self, new: u32) -> u32 {
        let old = self.max_workers;
        if new > 0 {
            self.max_workers = new;
        }
        old
    }

    /// From now on no worker parks.
    pub const fn shut_down(&mut self) {
        self.max_workers = 0;
    }

    /// Takes all idle workers: the caller wakes each.
    pub fn wake_all(&mut self) -> Vec<T> {
        self.searching += self.free.len() as u32;
        core::mem::take(&mut self.free)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const EARLY: fn() -> u64 = || 0;

    fn counts_of(max_workers: u32) -> WorkerCounts<&'static str> {
        WorkerCounts::new(max_workers)
    }

    fn start(counts: &mut WorkerCounts<&'static str>) {
        assert_eq!(counts.wake_action(EARLY), WakeAction::Start);
        counts.started();
    }

    #[test]
    fn one_worker_at_a_time_is_on_its_way() {
        let mut counts = counts_of(2);
        assert_eq!(counts.signal(), CAN_WAKE);
        start(&mut counts);
        assert_eq!(counts.signal(), 0);
        assert_eq!(counts.wake_action(EARLY), WakeAction::Nothing);
        assert_eq!(counts.capacity(), 2);
        counts.stop_searching();
        start(&mut counts);
        counts.stop_searching();
        assert_eq!(counts.wake_action(EARLY), WakeAction::Nothing);
        assert_eq!(counts.signal(), 0);
        assert_eq!(counts.capacity(), 0);
        counts.park("a");
        assert_eq!(counts.capacity(), 1);
    }

    #[test]
    fn last_parked_worker_is_woken_first() {
        let mut counts = counts_of(3);
        for _ in 0..2 {
            start(&mut counts);
            counts.stop_searching();
        }
        assert!(counts.park("a"));
        assert!(counts.park("b"));
        // Idle workers come before new ones.
        for worker in ["b", "a"] {
            assert_eq!(counts.wake_action(EARLY), WakeAction::Wake(worker));
            counts.stop_searching();
        }
        assert!(!counts.unpark(|&worker| worker == "a"));
        assert_eq!(counts.wake_action(EARLY), WakeAction::Start);
    }

    #[test]
    fn failed_start_is_retried_later_unless_there_is_no_worker() {
        let mut counts = counts_of(4);
        counts.start_failed(0);
        start(&mut counts);
        counts.stop_searching();
        counts.start_failed(100);
        assert_eq!(counts.wake_action(|| 100 + RETRY_NS - 1), WakeAction::Nothing);
        assert_eq!(counts.wake_action(|| 100 + RETRY_NS), WakeAction::Start);
    }

    #[test]
    fn lower_limit_makes_workers_exit() {
        let mut counts = counts_of(2);
        for _ in 0..2 {
            start(&mut counts);
            counts.stop_searching();
        }
        counts.max_workers = 1;
        assert_eq!(counts.signal(), OVER_LIMIT);
        assert!(!counts.park("a"));
        assert!(counts.try_exit(ExitReason::OverLimit, 0));
        assert!(!counts.try_exit(ExitReason::OverLimit, 0));
        assert_eq!(counts.signal(), 0);
        assert!(counts.park("b"));
    }

    #[test]
    fn a_kept_worker_stays_until_its_pool_is_shut_down() {
        let mut counts = counts_of(2);
        for _ in 0..2 {
            start(&mut counts);
            counts.stop_searching();
        }
        assert!(counts.try_exit(ExitReason::Idle, 1));
        assert!(!counts.try_exit(ExitReason::Idle, 1));
        counts.shut_down();
        assert!(counts.try_exit(ExitReason::Idle, 1));
    }

    #[test]
    fn pool_that_is_shut_down_still_works_but_parks_no_worker() {
        let mut counts = counts_of(1);
        counts.max_workers = 0;
        start(&mut counts);
        counts.stop_searching();
        assert_eq!(counts.signal(), 0);
        assert!(!counts.park("a"));
    }
}
