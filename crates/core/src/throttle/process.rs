//! The account of the process: its share of the machine's dirty pages, and which thread reads
//! /proc.

use super::dirty_rate::{BudgetReply, DirtyRate};
use uringlet_sys::lock::Mutex;
use uringlet_sys::vmstat::DirtyPages;

/// No reading takes as long: the thread that took the source does not exist any more.
pub(super) const SOURCE_LOST_NS: u64 = 1_000_000_000;

/// See the module. One per process.
#[derive(Debug)]
pub(crate) struct Throttle {
    state: Mutex<ThrottleState>,
}

#[derive(Debug)]
struct ThrottleState {
    dirty_rate: DirtyRate,
    /// The thread that reads takes it out.
    source: Option<DirtyPages>,
    source_taken_at_ns: u64,
}

/// This process' share of the machine's dirty pages.
pub(crate) static THROTTLE: Throttle = Throttle::new();

impl Throttle {
    const fn new() -> Self {
        Self { state: Mutex::new(ThrottleState::new()) }
    }

    /// `bytes` are about to be written through the page cache.
    pub(super) fn request(&self, now_ns: u64, bytes: u64) -> BudgetReply {
        let mut state = self.state.lock();
        if let Some(mut source) = state.take_source(now_ns) {
            drop(state);
            let readings = source.read(now_ns);
            state = self.state.lock();
            state.source = Some(source);
            state.dirty_rate.learn(now_ns, readings);
        }
        state.dirty_rate.request(now_ns, bytes)
    }

    /// A throttled write was cancelled; `cost_ns` is the delay it would have added to later ones.
    pub(super) fn refund(&self, cost_ns: u64) {
        self.state.lock().dirty_rate.refund(cost_ns);
    }

    /// Before fork(2): keeps all threads out until [`unlock_after_fork`](Self::unlock_after_fork).
    pub(crate) fn lock_for_fork(&self) {
        self.state.lock_for_fork();
    }

    /// In a copy of a process: what a thread that the copy does not have was changing begins anew.
    pub(crate) fn recover_in_copy(&self) {
        self.state.recover_in_copy(|torn| {
            core::mem::forget(torn);
            ThrottleState::new()
        });
    }

    /// After fork(2), in parent and child.
    pub(crate) fn unlock_after_fork(&self) {
        self.state.unlock_after_fork();
    }
}

impl ThrottleState {
    const fn new() -> Self {
        Self { dirty_rate: DirtyRate::new(), source: Some(DirtyPages::new()), source_taken_at_ns: 0 }
    }

    /// The source, if a reading is due and no thread makes one.
    fn take_source(&mut self, now_ns: u64) -> Option<DirtyPages> {
        if !self.dirty_rate.wants_reading(now_ns) {
            return None;
        }
        if self.source.is_none() && now_ns.saturating_sub(self.source_taken_at_ns) > SOURCE_LOST_NS {
            self.source = Some(DirtyPages::new());
        }
        let source = self.source.take()?;
        self.source_taken_at_ns = now_ns;
        Some(source)
    }
}
