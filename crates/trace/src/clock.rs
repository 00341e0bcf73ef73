//! Ticks of the processor's counter as times.

use std::time::{SystemTime, UNIX_EPOCH};

use uringlet_sys::trace::now;

/// Translates `uringlet_sys::clock::ticks`. The rate is measured from the first to the last
/// [`anchor`](Self::anchor), so that it grows more exact.
#[derive(Clone, Copy, Debug)]
pub struct TickClock {
    first: (u64, u64),
    last: (u64, u64),
    /// `CLOCK_REALTIME` at the first anchor, ns.
    epoch_ns: u64,
}

impl TickClock {
    /// A clock that starts now. Until it is anchored again its rate is a guess.
    #[must_use]
    pub fn start() -> Self {
        let first = now();
        let epoch_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        Self { first, last: (first.0.wrapping_add(1), first.1 + 1), epoch_ns }
    }

    /// Takes the time again.
    pub fn anchor(&mut self) {
        self.last = now();
    }

    /// Nanoseconds of so many ticks.
    #[must_use]
    pub fn ns(&self, ticks: u64) -> u64 {
        let (span, ns) = (self.last.0.wrapping_sub(self.first.0).max(1), self.last.1.wrapping_sub(self.first.1));
        (u128::from(ticks) * u128::from(ns) / u128::from(span)) as u64
    }

    /// Nanoseconds from the start of the clock; negative before it.
    #[must_use]
    pub fn since_start(&self, ticks: u64) -> i64 {
        let passed = ticks.wrapping_sub(self.first.0).cast_signed();
        if passed < 0 { -(self.ns(passed.unsigned_abs()).cast_signed()) } else { self.ns(passed.unsigned_abs()).cast_signed() }
    }

    /// Nanoseconds since 1970.
    #[must_use]
    pub fn epoch_ns(&self, ticks: u64) -> u64 {
        self.epoch_ns.saturating_add_signed(self.since_start(ticks))
    }

    /// A clock of one nanosecond a tick that starts at 0.
    #[cfg(test)]
    pub(crate) const fn of_test() -> Self {
        Self { first: (0, 0), last: (1_000_000, 1_000_000), epoch_ns: 1_700_000_000_000_000_000 }
    }
}
