//! How writes to a file went so far: enough to guess how the next one will go. Pure: no clock, no system call.
//!
//! ```text
//!            a write by the caller took long                    64 quick ones
//!   clean ------------------------------------> down(level) --------------------> down(level - 1) ... clean
//!                                                  |     ^
//!                                    owed > 0:     v     |  long again: level + 1, owed = 4^level
//!                                    workers write, each quick one takes one off what is owed;
//!                                    owed = 0: the caller writes again
//! ```
//!
//! Time that a worker slept is known exactly; the caller's is only measured, and it may merely have lost the CPU. So the
//! first miss costs one trip to a worker, which tells; a file that goes on blocking is tried again ever more rarely.

/// Quick writes by the caller that make up for one level.
const STREAK: u16 = 64;
/// From the deepest level a file comes back after 4^(LEVELS - 1) = 1024 quick writes by workers.
const LEVELS: u8 = 6;

/// Beyond this an inline write has taken too long: 120 to 600 µs, and more for large ones.
const BUDGET_TICKS: u64 = 600_000;
/// A page cache takes a byte in less, allocation included.
const BUDGET_TICKS_PER_BYTE: u64 = 8;

/// How a write went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Latency {
    /// As a page cache takes it.
    Fast,
    /// Its thread may have slept.
    Slow,
}

impl Latency {
    /// By the time that `bytes` took.
    #[inline(always)]
    pub(crate) fn of(ticks: u64, bytes: u64) -> Self {
        if ticks > BUDGET_TICKS + BUDGET_TICKS_PER_BYTE * bytes { Self::Slow } else { Self::Fast }
    }
}

/// What is remembered of a file; all zero for a file that never blocked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct History {
    /// How often it has disappointed lately: 0 to [`LEVELS`].
    level: u8,
    /// Quick writes since then: by workers while any are owed, then by the caller.
    streak: u16,
    /// Quick writes by others before the caller may write again.
    owed: u16,
    /// Writes that are with workers, or put off.
    queued: u16,
}

impl History {
    /// From the word that the descriptor table keeps.
    #[inline]
    pub(crate) fn of(word: u64) -> Self {
        Self { level: word as u8, streak: (word >> 16) as u16, owed: (word >> 32) as u16, queued: (word >> 48) as u16 }
    }

    /// For the descriptor table.
    pub(crate) fn word(self) -> u64 {
        u64::from(self.level) | u64::from(self.streak) << 16 | u64::from(self.owed) << 32 | u64::from(self.queued) << 48
    }

    /// Whether the caller may be expected to write without blocking.
    pub(crate) fn is_fast(self) -> bool {
        self.owed == 0
    }

    /// Whether a try without waiting is worth it: somebody could write since it blocked. (It is not quite without waiting:
    /// a frozen filesystem holds up `RWF_NOWAIT`, too.)
    pub(crate) fn may_try(self) -> bool {
        self.is_fast() || self.streak > 0
    }

    /// Whether it blocked lately.
    pub(crate) fn is_down(self) -> bool {
        self.level > 0
    }

    /// Whether writes are on their way: later ones go behind them.
    pub(crate) fn has_queued(self) -> bool {
        self.queued > 0
    }

    /// The caller wrote.
    #[must_use]
    pub(crate) fn after_inline(self, took: Latency) -> Self {
        match took {
            Latency::Slow => self.worse(),
            Latency::Fast if self.level == 0 => self,
            Latency::Fast if self.streak + 1 < STREAK => Self { streak: self.streak + 1, ..self },
            Latency::Fast => Self { level: self.level - 1, streak: 0, ..self },
        }
    }

    /// Somebody else wrote: a worker, or the caller without waiting.
    #[must_use]
    pub(crate) fn after_worker(self, took: Latency) -> Self {
        match took {
            Latency::Slow => self.worse(),
            Latency::Fast if self.owed == 0 => self,
            Latency::Fast if self.owed == 1 => Self { owed: 0, streak: 0, ..self },
            Latency::Fast => Self { owed: self.owed - 1, streak: self.streak.saturating_add(1), ..self },
        }
    }

    fn worse(self) -> Self {
        let level = (self.level + 1).min(LEVELS);
        Self { level, streak: 0, owed: 1 << (2 * (level - 1)), ..self }
    }

    /// One more is on its way.
    #[must_use]
    pub(crate) fn queue(self) -> Self {
        Self { queued: self.queued.saturating_add(1), ..self }
    }

    /// One is over.
    #[must_use]
    pub(crate) fn unqueue(self) -> Self {
        Self { queued: self.queued.saturating_sub(1), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_holds_all_of_it() {
        let history = History { level: 5, streak: 63, owed: 1024, queued: u16::MAX };
        assert_eq!(History::of(history.word()), history);
        assert_eq!(History::default().word(), 0);
    }

    #[test]
    fn a_clean_file_stays_clean_and_needs_no_note() {
        let clean = History::default();
        assert_eq!(clean.after_inline(Latency::Fast), clean);
        assert_eq!(clean.after_worker(Latency::Fast), clean);
        assert!(clean.is_fast() && !clean.is_down() && !clean.has_queued());
    }

    #[test]
    fn a_false_alarm_costs_one_write_by_a_worker() {
        let missed = History::default().after_inline(Latency::Slow);
        assert!(!missed.is_fast() && missed.is_down());
        let mut back = missed.after_worker(Latency::Fast);
        assert!(back.is_fast());
        for _ in 0..STREAK {
            back = back.after_inline(Latency::Fast);
        }
        assert_eq!(back, History::default());
    }

    #[test]
    fn after_a_miss_a_worker_goes_first() {
        let twice = History::default().after_inline(Latency::Slow).after_worker(Latency::Slow);
        assert!(!twice.may_try());
        let quick_since = twice.after_worker(Latency::Fast);
        assert!(quick_since.may_try() && !quick_since.is_fast());
    }

    #[test]
    fn queued_writes_are_counted_and_never_below_zero() {
        let mut history = History::default().queue().queue();
        assert!(history.has_queued());
        for _ in 0..3 {
            history = history.unqueue();
        }
        assert_eq!(history, History::default());
    }

    /// A file that behaves as `blocks` says at its n-th write, under the policy: (misses by the caller, writes by workers).
    fn simulate(writes: u32, blocks: impl Fn(u32) -> bool) -> (u32, u32) {
        let (mut history, mut misses, mut elsewhere) = (History::default(), 0, 0);
        for n in 0..writes {
            let took = if blocks(n) { Latency::Slow } else { Latency::Fast };
            if history.is_fast() {
                misses += u32::from(took == Latency::Slow);
                history = history.after_inline(took);
            } else {
                elsewhere += 1;
                history = history.after_worker(took);
            }
        }
        (misses, elsewhere)
    }

    #[test]
    fn a_file_that_always_blocks_costs_the_caller_one_call() {
        assert_eq!(simulate(10_000, |_| true), (1, 9_999));
    }

    #[test]
    fn a_file_that_recovers_comes_back_by_itself() {
        let (misses, elsewhere) = simulate(20_000, |n| n < 1_000);
        assert_eq!(misses, 1);
        assert!(elsewhere < 2_100, "{elsewhere} writes went to workers");
    }

    #[test]
    fn rare_misses_cost_little_and_frequent_ones_move_the_file_away() {
        // Every 3000th, as a preempted caller sees it.
        let (misses, elsewhere) = simulate(300_000, |n| n % 3_000 == 2_999);
        // The last one is nobody's turn any more.
        assert_eq!((misses, elsewhere), (100, 99));
        // Every tenth: a caller that always wrote itself would have missed 10,000.
        let (misses, elsewhere) = simulate(100_000, |n| n % 10 == 9);
        assert!(misses < 100, "{misses}");
        assert!(elsewhere > 95_000, "{elsewhere}");
    }

    #[test]
    fn large_writes_may_take_longer() {
        assert_eq!(Latency::of(BUDGET_TICKS + 1, 0), Latency::Slow);
        assert_eq!(Latency::of(BUDGET_TICKS + 1, 4096), Latency::Fast);
    }
}
