//! How long a thread spins before it sleeps: as long as that has paid lately.
//!
//! A wake-up costs 5 to 30 µs, which is more than many an answer takes. Who waits therefore looks for a while. That while grows where sleeping was over
//! soon, and is nothing where it was long: who waits for a disk, or has nothing to do, does not spin.

use uringlet_sys::process::{cpu_count, monotonic_ns, yield_now};

/// Nobody spins longer, ns.
const MOST_NS: u64 = 50_000;
/// Where it begins to grow, ns.
const FIRST_NS: u64 = 10_000;
/// Looks between two times that the CPU is offered to others.
const LOOKS: u32 = 20;

/// See the module.
#[derive(Debug)]
pub struct AdaptiveSpin {
    window_ns: u64,
    is_alone: bool,
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
        Self { window_ns: 0, is_alone: cpu_count() < 2 }
    }

    /// Spins until there is something, or `sleep`s for it once the patience is over. `look` is cheap, and asked often.
    pub fn wait<R>(&mut self, mut look: impl FnMut() -> bool, sleep: impl FnOnce() -> R) -> Option<R> {
        let mut spell = self.budget();
        loop {
            if look() {
                return None;
            }
            if spell.is_spent() {
                break;
            }
        }
        let slept = sleep();
        self.record_wait(spell.elapsed_ns());
        Some(slept)
    }

    /// A time of waiting begins.
    #[must_use]
    pub fn budget(&self) -> SpinBudget {
        SpinBudget { begun_ns: monotonic_ns(), window_ns: self.window_ns, looks: 0 }
    }

    /// So long was waited, in vain at first: who was patient slept after that.
    pub const fn record_wait(&mut self, waited_ns: u64) {
        self.window_ns = if self.is_alone || waited_ns > MOST_NS {
            0
        } else if self.window_ns == 0 {
            FIRST_NS
        } else if self.window_ns * 2 > MOST_NS {
            MOST_NS
        } else {
            self.window_ns * 2
        };
    }
}

/// One time of waiting.
#[derive(Clone, Copy, Debug)]
pub struct SpinBudget {
    begun_ns: u64,
    window_ns: u64,
    looks: u32,
}

impl SpinBudget {
    /// Whether to sleep now. To be asked after each look.
    pub fn is_spent(&mut self) -> bool {
        if self.window_ns == 0 {
            return true;
        }
        core::hint::spin_loop();
        self.looks += 1;
        if !self.looks.is_multiple_of(LOOKS) {
            return false;
        }
        let is_over = self.elapsed_ns() >= self.window_ns;
        if !is_over {
            yield_now();
        }
        is_over
    }

    /// Since it began, ns.
    #[must_use]
    pub fn elapsed_ns(&self) -> u64 {
        monotonic_ns().saturating_sub(self.begun_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_with_short_waits_and_ends_with_a_long_one() {
        let mut patience = AdaptiveSpin { window_ns: 0, is_alone: false };
        let mut windows = alloc::vec::Vec::new();
        for waited in [20_000, 20_000, 20_000, 20_000, 20_000, MOST_NS + 1, 5] {
            patience.record_wait(waited);
            windows.push(patience.window_ns);
        }
        assert_eq!(windows, [10_000, 20_000, 40_000, 50_000, 50_000, 0, 10_000]);
    }

    #[test]
    fn what_comes_while_it_spins_needs_no_sleep() {
        let mut patience = AdaptiveSpin { window_ns: MOST_NS, is_alone: false };
        let mut looks = 0;
        let slept = patience.wait(
            || {
                looks += 1;
                looks == 3
            },
            || panic!("it sleeps"),
        );
        assert!(slept.is_none());
        assert_eq!(patience.wait(|| false, || 7), Some(7));
    }
}
