//! Dirty throttling: when a buffered write may be issued, so that nobody sleeps in balance_dirty_pages for it.
//!
//! The kernel lets writers run free up to a ceiling, half-way between the background threshold and the limit of dirty
//! pages; above it each writer sleeps after so many pages, so that all together dirty as much as the disks take. Here
//! a write that would have to sleep is not issued: whoever submits keeps it until a deadline, and goes on.
//!
//! ```text
//!   ask(bytes) -> Free { bytes, until }   below the ceiling: a budget, this request included. Only then ask again.
//!              -> Free { bytes, now }     above it, but in time: this request only
//!              -> Throttled { deadline }      above it: issue at the deadline. It is paid for: do not ask again.
//! ```
//!
//! What must hold:
//! - The reading of /proc is made by one thread at a time, without the lock: others go by the last one. A reading is at
//!   most [`dirty_rate::READING_NS`] young before the next is made; while all is far from the limits, one a budget.
//! - Whoever reads has taken the source out of the state. A forked child may have a state whose source a thread took
//!   that it does not have: after [`SOURCE_LOST_NS`] there is a new source.
//! - Deadlines of one process come in the order of the asking, each as much later as what was asked before takes at the
//!   rate of the time. A queue of any length is thus spaced; its last member waits at most for what is before it, at no
//!   less than [`dirty_rate::RATE_MIN`]. What is cancelled before its deadline is paid back: those asked for later do not
//!   wait for it (those asked for earlier keep their deadlines).
//!
//! `docs/throttle.md` has the figures, and what the kernel does better.

mod dirty_rate;
#[cfg(all(test, not(loom)))]
mod tests;

use super::Throttled;
use dirty_rate::DirtyRate;
use uringlet_sys::lock::Mutex;
use uringlet_sys::vmstat::DirtyPages;

/// No reading takes as long: whoever took the source does not exist any more.
const SOURCE_LOST_NS: u64 = 1_000_000_000;

/// When a buffered write may be issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BudgetReply {
    /// So many bytes, those asked for included, may be written inline until then, without asking again.
    Free {
        /// At least what was asked for.
        bytes: u64,
        /// `CLOCK_MONOTONIC`; the time of the asking: for this request only.
        until_ns: u64,
    },
    /// Near the limits: not before its time. It is in the account already: then issue, without asking again.
    Throttled(Throttled),
}

/// See the module. One a process.
#[derive(Debug)]
pub(crate) struct Throttle {
    state: Mutex<ThrottleState>,
}

#[derive(Debug)]
struct ThrottleState {
    dirty_rate: DirtyRate,
    /// Taken out by whoever reads.
    source: Option<DirtyPages>,
    source_taken_at_ns: u64,
}

/// This process' share of the machine's dirty pages.
pub(crate) static THROTTLE: Throttle = Throttle::new();

impl Throttle {
    const fn new() -> Self {
        Self { state: Mutex::new(ThrottleState { dirty_rate: DirtyRate::new(), source: Some(DirtyPages::new()), source_taken_at_ns: 0 }) }
    }

    /// `bytes` are about to be written through the page cache.
    pub(crate) fn request(&self, now_ns: u64, bytes: u64) -> BudgetReply {
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

    /// What was throttled is not written after all, and this is what it would have cost.
    pub(crate) fn refund(&self, cost_ns: u64) {
        self.state.lock().dirty_rate.refund(cost_ns);
    }

    /// fork(2): nobody is in here until [`unlock_after_fork`](Self::unlock_after_fork).
    pub(crate) fn lock_for_fork(&self) {
        self.state.lock_for_fork();
    }

    /// After fork(2), in parent and child.
    pub(crate) fn unlock_after_fork(&self) {
        self.state.unlock_after_fork();
    }
}

impl ThrottleState {
    /// The source, if it is time to read and nobody does.
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
