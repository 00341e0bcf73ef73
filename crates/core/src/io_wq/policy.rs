//! When a worker is called, started, and let go: a class' counts of what the pool lock guards. No thread, no clock, no work.

use super::worker::ExitReason;
use alloc::vec::Vec;

/// After a start that failed, none is tried for so long while other workers are there, ns.
const RETRY_NS: u64 = 10_000_000;

/// A bit of [`WorkerCounts::signal`]: ready work without somebody on the way to it is worth a look at the pool.
pub const CAN_WAKE: u32 = 1;
/// A bit of [`WorkerCounts::signal`]: there are more workers than there may be.
pub const OVER_LIMIT: u32 = 2;

/// Who comes for ready work.
#[derive(Debug, PartialEq, Eq)]
pub enum WakeAction<T> {
    /// Somebody is on the way; or all are busy, and there may be no more.
    Nothing,
    /// This idle worker, which is idle no longer.
    Wake(T),
    /// A new worker: [`WorkerCounts::started`] or [`WorkerCounts::start_failed`] is next.
    Start,
}

/// Workers of a class.
#[derive(Debug)]
pub struct WorkerCounts<T> {
    /// All there are: idle, busy, on their way.
    pub workers: u32,
    /// The limit; 0: the pool is shut down.
    pub max_workers: u32,
    /// Those that were called or started and have not found work yet.
    searching: u32,
    /// The idle ones: the last one in is the first one out, so that in quiet times the others can end.
    free: Vec<T>,
    /// A start failed: none before this time.
    retry_at_ns: Option<u64>,
}

impl<T> WorkerCounts<T> {
    /// Nobody yet.
    #[must_use]
    pub const fn new(max_workers: u32) -> Self {
        Self { workers: 0, max_workers, searching: 0, free: Vec::new(), retry_at_ns: None }
    }

    /// Even a pool that is shut down does what it has.
    fn limit(&self) -> u32 {
        self.max_workers.max(1)
    }

    /// What others may know without the pool lock.
    #[must_use]
    pub fn signal(&self) -> u32 {
        let has_capacity = !self.free.is_empty() || self.workers < self.limit();
        let look = if self.searching == 0 && has_capacity { CAN_WAKE } else { 0 };
        let excess = if self.workers > self.limit() { OVER_LIMIT } else { 0 };
        look | excess
    }

    /// How many could find work without anybody being done with theirs.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.searching + self.free.len() as u32 + self.limit().saturating_sub(self.workers)
    }

    /// There is ready work: who comes for it.
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

    /// A thread was started.
    pub const fn started(&mut self) {
        self.workers += 1;
        self.searching += 1;
        self.retry_at_ns = None;
    }

    /// None could be started.
    pub const fn start_failed(&mut self, now_ns: u64) {
        self.retry_at_ns = Some(now_ns + RETRY_NS);
    }

    /// A worker that was called has found work.
    pub const fn found_work(&mut self) {
        self.searching -= 1;
    }

    /// A worker has found nothing, and would like to sleep. `false`: it is not wanted any more.
    pub fn park(&mut self, worker: T) -> bool {
        let is_wanted = self.max_workers > 0 && self.workers <= self.max_workers;
        if is_wanted {
            self.free.push(worker);
        }
        is_wanted
    }

    /// Whether a worker was idle until now; it is not any more.
    pub fn unpark(&mut self, is_it: impl Fn(&T) -> bool) -> bool {
        let at = self.free.iter().position(is_it);
        at.map(|at| self.free.remove(at)).is_some()
    }

    /// A worker would like to go: whether it may.
    pub fn try_exit(&mut self, why: ExitReason) -> bool {
        let goes = why != ExitReason::Excess || self.workers > self.limit();
        self.workers -= u32::from(goes);
        goes
    }

    /// A worker that went comes back, if there is nobody else.
    pub const fn rejoin(&mut self) -> bool {
        let is_alone = self.workers == 0;
        if is_alone {
            self.workers = 1;
        }
        is_alone
    }

    /// Sets the limit, unless it is 0; the old one.
    pub fn set_limit(&mut self, new: u32) -> u32 {
        let old = self.max_workers;
        if new > 0 {
            self.max_workers = new;
        }
        old
    }

    /// Nobody stays who has nothing to do.
    pub const fn shut_down(&mut self) {
        self.max_workers = 0;
    }

    /// Everybody who is idle, no longer so: each is to be called.
    pub fn wake_all(&mut self) -> Vec<T> {
        self.searching += self.free.len() as u32;
        core::mem::take(&mut self.free)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const EARLY: fn() -> u64 = || 0;

    fn side_of(max_workers: u32) -> WorkerCounts<&'static str> {
        WorkerCounts::new(max_workers)
    }

    fn start(counts: &mut WorkerCounts<&'static str>) {
        assert_eq!(counts.wake_action(EARLY), WakeAction::Start);
        counts.started();
    }

    #[test]
    fn one_at_a_time_is_on_its_way() {
        let mut counts = side_of(2);
        assert_eq!(counts.signal(), CAN_WAKE);
        start(&mut counts);
        assert_eq!(counts.signal(), 0);
        assert_eq!(counts.wake_action(EARLY), WakeAction::Nothing);
        assert_eq!(counts.capacity(), 2);
        counts.found_work();
        start(&mut counts);
        counts.found_work();
        assert_eq!(counts.wake_action(EARLY), WakeAction::Nothing);
        assert_eq!(counts.signal(), 0);
        assert_eq!(counts.capacity(), 0);
        counts.park("a");
        assert_eq!(counts.capacity(), 1);
    }

    #[test]
    fn the_last_to_rest_is_called_first() {
        let mut counts = side_of(3);
        for _ in 0..2 {
            start(&mut counts);
            counts.found_work();
        }
        assert!(counts.park("a"));
        assert!(counts.park("b"));
        // Idle workers come before new ones.
        for worker in ["b", "a"] {
            assert_eq!(counts.wake_action(EARLY), WakeAction::Wake(worker));
            counts.found_work();
        }
        assert!(!counts.unpark(|&worker| worker == "a"));
        assert_eq!(counts.wake_action(EARLY), WakeAction::Start);
    }

    #[test]
    fn a_failed_start_is_not_repeated_at_once_unless_there_is_nobody() {
        let mut counts = side_of(4);
        counts.start_failed(0);
        start(&mut counts);
        counts.found_work();
        counts.start_failed(100);
        assert_eq!(counts.wake_action(|| 100 + RETRY_NS - 1), WakeAction::Nothing);
        assert_eq!(counts.wake_action(|| 100 + RETRY_NS), WakeAction::Start);
    }

    #[test]
    fn a_lower_limit_sends_workers_away() {
        let mut counts = side_of(2);
        for _ in 0..2 {
            start(&mut counts);
            counts.found_work();
        }
        counts.max_workers = 1;
        assert_eq!(counts.signal(), OVER_LIMIT);
        assert!(!counts.park("a"));
        assert!(counts.try_exit(ExitReason::Excess));
        assert!(!counts.try_exit(ExitReason::Excess));
        assert_eq!(counts.signal(), 0);
        assert!(counts.park("b"));
    }

    #[test]
    fn a_pool_that_is_shut_down_keeps_nobody_but_still_works() {
        let mut counts = side_of(1);
        counts.max_workers = 0;
        start(&mut counts);
        counts.found_work();
        assert_eq!(counts.signal(), 0);
        assert!(!counts.park("a"));
    }
}
