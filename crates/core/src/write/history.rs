//! The latency of a file's writes so far: enough to guess the latency of the next one. Pure: no
//! clock, no system call.
//!
//! ```text
//!          a slow write by the caller                    64 fast ones
//!   clean ---------------------------> down(level) --------------------> down(level - 1) ... clean
//!                                         |     ^
//!                    worker_quota > 0:    v     |  slow again: level + 1, worker_quota = 4^level
//!                    workers write, and each fast write takes one off worker_quota;
//!                    worker_quota = 0: the caller writes again
//! ```
//!
//! The time that a worker slept is known exactly. The caller's is only measured, and the caller may
//! merely have lost the CPU. So the first slow write costs one write by a worker, which gives
//! certainty; a file that goes on blocking is tried again at growing distances.

/// Fast writes by the caller that reduce the level by one.
const STREAK: u16 = 64;
/// From the deepest level a file comes back after 4^(LEVELS - 1) = 1024 fast writes by workers.
const LEVELS: u8 = 6;

/// An inline write that takes longer is slow: 120 to 600 µs, and more for large ones.
const BUDGET_TICKS: u64 = 600_000;
/// The page cache takes a byte in less, allocation included.
const BUDGET_TICKS_PER_BYTE: u64 = 8;

/// The latency class of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Latency {
    /// As a page cache takes it.
    Fast,
    /// Its thread may have slept.
    Slow,
}

impl Latency {
    /// The class of a write of `bytes` that took `ticks`.
    #[inline(always)]
    pub(crate) fn of(ticks: u64, bytes: u64) -> Self {
        if ticks > BUDGET_TICKS + BUDGET_TICKS_PER_BYTE * bytes { Self::Slow } else { Self::Fast }
    }
}

/// What is remembered of a file; all zero for a file that never blocked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct History {
    /// Rises with each slow write, falls with fast ones: 0 to [`LEVELS`].
    level: u8,
    /// Fast writes since then: by workers while `worker_quota` lasts, then by the caller.
    streak: u16,
    /// Fast writes by workers before the caller may write again.
    worker_quota: u16,
    /// Writes that are with workers, or throttled.
    queued: u16,
}

impl History {
    /// From the word that the descriptor table keeps.
    #[inline]
    pub(crate) fn of(word: u64) -> Self {
        Self { level: word as u8, streak: (word >> 16) as u16, worker_quota: (word >> 32) as u16, queued: (word >> 48) as u16 }
    }

    /// For the descriptor table.
    pub(crate) fn word(self) -> u64 {
        u64::from(self.level) | u64::from(self.streak) << 16 | u64::from(self.worker_quota) << 32 | u64::from(self.queued) << 48
    }

    /// Whether a write by the caller is expected not to block.
    pub(crate) fn is_fast(self) -> bool {
        self.worker_quota == 0
    }

    /// Whether a try with `RWF_NOWAIT` is worthwhile: there was a fast write since the slow one.
    /// (Even `RWF_NOWAIT` waits on a frozen filesystem.)
    pub(crate) fn may_try(self) -> bool {
        self.is_fast() || self.streak > 0
    }

    /// Whether it blocked recently.
    pub(crate) fn is_down(self) -> bool {
        self.level > 0
    }

    /// Whether writes are queued: later ones go behind them.
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

    /// A worker wrote, or the caller with `RWF_NOWAIT`.
    #[must_use]
    pub(crate) fn after_worker(self, took: Latency) -> Self {
        match took {
            Latency::Slow => self.worse(),
            Latency::Fast if self.worker_quota == 0 => self,
            Latency::Fast if self.worker_quota == 1 => Self { worker_quota: 0, streak: 0, ..self },
            Latency::Fast => Self { worker_quota: self.worker_quota - 1, streak: self.streak.saturating_add(1), ..self },
        }
    }

    fn worse(self) -> Self {
        let level = (self.level + 1).min(LEVELS);
        Self { level, streak: 0, worker_quota: 1 << (2 * (level - 1)), ..self }
    }

    /// One more write is queued.
    #[must_use]
    pub(crate) fn queue(self) -> Self {
        Self { queued: self.queued.saturating_add(1), ..self }
    }

    /// A queued write has ended.
    #[must_use]
    pub(crate) fn unqueue(self) -> Self {
        Self { queued: self.queued.saturating_sub(1), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_holds_the_whole_history() {
        let history = History { level: 5, streak: 63, worker_quota: 1024, queued: u16::MAX };
        assert_eq!(History::of(history.word()), history);
        assert_eq!(History::default().word(), 0);
    }

    #[test]
    fn clean_file_stays_clean_after_fast_writes() {
        let clean = History::default();
        assert_eq!(clean.after_inline(Latency::Fast), clean);
        assert_eq!(clean.after_worker(Latency::Fast), clean);
        assert!(clean.is_fast() && !clean.is_down() && !clean.has_queued());
    }

    #[test]
    fn single_slow_write_costs_one_write_by_a_worker() {
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
    fn after_a_slow_write_a_worker_writes_first() {
        let twice = History::default().after_inline(Latency::Slow).after_worker(Latency::Slow);
        assert!(!twice.may_try());
        let quick_since = twice.after_worker(Latency::Fast);
        assert!(quick_since.may_try() && !quick_since.is_fast());
    }

    #[test]
    fn queued_writes_never_count_below_zero() {
        let mut history = History::default().queue().queue();
        assert!(history.has_queued());
        for _ in 0..3 {
            history = history.unqueue();
        }
        assert_eq!(history, History::default());
    }

    /// Writes to a file whose n-th write is slow if `blocks(n)`: (slow writes by the caller, writes
    /// by workers).
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
    fn file_that_always_blocks_costs_the_caller_one_write() {
        assert_eq!(simulate(10_000, |_| true), (1, 9_999));
    }

    #[test]
    fn file_that_recovers_comes_back() {
        let (misses, elsewhere) = simulate(20_000, |n| n < 1_000);
        assert_eq!(misses, 1);
        assert!(elsewhere < 2_100, "{elsewhere} writes went to workers");
    }

    #[test]
    fn rare_slow_writes_cost_little_and_frequent_ones_move_the_file_to_workers() {
        // Every 3000th write is slow, as for a caller that is preempted.
        let (misses, elsewhere) = simulate(300_000, |n| n % 3_000 == 2_999);
        // The last slow write has no successor.
        assert_eq!((misses, elsewhere), (100, 99));
        // Every tenth: a caller that always wrote itself would have had 10,000 slow writes.
        let (misses, elsewhere) = simulate(100_000, |n| n % 10 == 9);
        assert!(misses < 100, "{misses}");
        assert!(elsewhere > 95_000, "{elsewhere}");
    }

    #[test]
    fn large_writes_are_slow_later() {
        assert_eq!(Latency::of(BUDGET_TICKS + 1, 0), Latency::Slow);
        assert_eq!(Latency::of(BUDGET_TICKS + 1, 4096), Latency::Fast);
    }
}
