//! How long a thread spins before it sleeps: as long as that has paid lately.
//!
//! A wake-up costs 5 to 30 µs, which is more than many an answer takes. Who waits therefore polls for a while. That while grows where sleeping was over
//! soon, and is nothing where it was long: who waits for a disk, or has nothing to do, does not spin.

use uringlet_sys::process::{cpu_count, monotonic_ns, yield_now};

/// Nobody spins longer, ns.
const MAX_SPIN_NS: u64 = 50_000;
/// Where it begins to grow, ns.
const INITIAL_SPIN_NS: u64 = 10_000;
/// Looks between two times that the CPU is offered to others.
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
    /// That of a thread that has not waited yet.
    #[must_use]
    pub fn new() -> Self {
        // On one CPU, what is waited for cannot come while one spins.
        Self { window_ns: 0, is_single_cpu: cpu_count() < 2 }
    }

    /// Spins until there is something, or `sleep`s for it once the spin is over. `poll` is cheap, and asked often.
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

    /// A time of waiting begins.
    #[must_use]
    pub fn budget(&self) -> SpinBudget {
        SpinBudget { started_ns: monotonic_ns(), window_ns: self.window_ns, polls: 0 }
    }

    /// So long was waited, in vain at first: who was patient slept after that.
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

/// One time of waiting.
#[derive(Clone, Copy, Debug)]
pub struct SpinBudget {
    started_ns: u64,
    window_ns: u64,
    polls: u32,
}

impl SpinBudget {
    /// Whether to sleep now. To be asked after each look.
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

    /// Since it began, ns.
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
