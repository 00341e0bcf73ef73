//! Adaptive spinning: how long a thread polls before it sleeps.
//!
//! A wake-up takes 5 to 30 µs, longer than many an event takes to arrive. So a waiting thread polls
//! first. The window grows while sleeps turn out short, and drops to zero after a long one: a
//! thread that waits for a disk, or has no work, does not spin.

use uringlet_sys::process::{cpu_count, monotonic_ns, yield_now};

/// Upper limit of the window, ns.
const MAX_SPIN_NS: u64 = 50_000;
/// First window above zero, ns.
const INITIAL_SPIN_NS: u64 = 10_000;
/// Polls between two checks of the clock, each followed by a yield.
const POLLS_PER_CHECK: u32 = 20;

/// See the module.
#[derive(Debug)]
pub struct AdaptiveSpin {
    window_ns: u64,
    is_single_cpu: bool,
}

impl Default for AdaptiveSpin {
    fn default() -> Self {
        Self::new()
    }
}

impl AdaptiveSpin {
    /// The state of a thread that has not waited yet.
    #[must_use]
    pub fn new() -> Self {
        // On a single CPU the event cannot come while this thread spins.
        Self { window_ns: 0, is_single_cpu: cpu_count() < 2 }
    }

    /// Polls until there is an event, or `sleep`s once the budget is spent. `poll` is cheap, and
    /// called often. Returns the result of `sleep` if it slept.
    pub fn wait<R>(&mut self, mut poll: impl FnMut() -> bool, sleep: impl FnOnce() -> R) -> Option<R> {
        let mut budget = self.budget();
        loop {
            if poll() {
                return None;
            }
            if budget.is_spent() {
                break;
            }
        }
        let slept = sleep();
        self.record_wait(budget.elapsed_ns());
        Some(slept)
    }

    /// The budget of one wait.
    #[must_use]
    pub fn budget(&self) -> SpinBudget {
        SpinBudget { started_ns: monotonic_ns(), window_ns: self.window_ns, polls: 0 }
    }

    /// Adapts the window to a wait that ended in a sleep, and took this long in total.
    pub const fn record_wait(&mut self, waited_ns: u64) {
        self.window_ns = if self.is_single_cpu || waited_ns > MAX_SPIN_NS {
            0
        } else if self.window_ns == 0 {
            INITIAL_SPIN_NS
        } else if self.window_ns * 2 > MAX_SPIN_NS {
            MAX_SPIN_NS
        } else {
            self.window_ns * 2
        };
    }
}

/// The time that one wait may spin.
#[derive(Clone, Copy, Debug)]
pub struct SpinBudget {
    started_ns: u64,
    window_ns: u64,
    polls: u32,
}

impl SpinBudget {
    /// Whether to sleep now. To be called after each poll.
    pub fn is_spent(&mut self) -> bool {
        if self.window_ns == 0 {
            return true;
        }
        core::hint::spin_loop();
        self.polls += 1;
        if !self.polls.is_multiple_of(POLLS_PER_CHECK) {
            return false;
        }
        let is_spent = self.elapsed_ns() >= self.window_ns;
        if !is_spent {
            yield_now();
        }
        is_spent
    }

    /// Time since the wait began, ns.
    #[must_use]
    pub fn elapsed_ns(&self) -> u64 {
        monotonic_ns().saturating_sub(self.started_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_grows_with_short_waits_and_resets_after_a_long_one() {
        let mut spin = AdaptiveSpin { window_ns: 0, is_single_cpu: false };
        let mut windows = alloc::vec::Vec::new();
        for waited in [20_000, 20_000, 20_000, 20_000, 20_000, MAX_SPIN_NS + 1, 5] {
            spin.record_wait(waited);
            windows.push(spin.window_ns);
        }
        assert_eq!(windows, [10_000, 20_000, 40_000, 50_000, 50_000, 0, 10_000]);
    }

    #[test]
    fn an_event_during_the_spin_needs_no_sleep() {
        let mut spin = AdaptiveSpin { window_ns: MAX_SPIN_NS, is_single_cpu: false };
        let mut polls = 0;
        let slept = spin.wait(
            || {
                polls += 1;
                polls == 3
            },
            || panic!("it sleeps"),
        );
        assert!(slept.is_none());
        assert_eq!(spin.wait(|| false, || 7), Some(7));
    }
}
