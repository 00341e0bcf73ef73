//! Random pauses between a reply and the next message, exponentially distributed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct Pauses {
    mean: Duration,
    state: u64,
    ends: BinaryHeap<Reverse<(Instant, usize)>>,
}

impl Pauses {
    pub(super) fn new(mean: Duration) -> Self {
        Self { mean, state: 0x2545_f491_4f6c_dd1d, ends: BinaryHeap::new() }
    }

    /// Starts a pause of connection `number`. False if pauses are off.
    pub(super) fn begin(&mut self, number: usize, now: Instant) -> bool {
        if self.mean.is_zero() {
            return false;
        }
        let pause = self.next_pause();
        self.ends.push(Reverse((now + pause, number)));
        true
    }

    fn next_pause(&mut self) -> Duration {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        // In (0, 1].
        let uniform = ((self.state >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        self.mean.mul_f64(-uniform.ln())
    }

    /// A connection whose pause is over.
    pub(super) fn pop_ended(&mut self, now: Instant) -> Option<usize> {
        let Reverse((end, number)) = *self.ends.peek()?;
        (end <= now).then(|| {
            self.ends.pop();
            number
        })
    }

    /// Time until the next pause ends, at most `limit`.
    pub(super) fn time_to_next(&self, now: Instant, limit: Duration) -> Duration {
        self.ends.peek().map_or(limit, |Reverse((end, _))| end.saturating_duration_since(now).min(limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_end_in_their_order() {
        let (mut pauses, now) = (Pauses::new(Duration::from_millis(10)), Instant::now());
        assert!((0..1000).all(|number| pauses.begin(number, now)));
        assert_eq!(pauses.time_to_next(now, Duration::ZERO), Duration::ZERO);
        let limit = Duration::from_secs(1);
        let (mut ended, mut total, mut at) = (0, Duration::ZERO, now);
        while ended < 1000 {
            let gap = pauses.time_to_next(at, limit);
            assert!(gap < limit && (gap.is_zero() || pauses.pop_ended(at).is_none()));
            at += gap;
            while pauses.pop_ended(at).is_some() {
                (ended, total) = (ended + 1, total + (at - now));
            }
        }
        assert!((8..12).contains(&(total / 1000).as_millis()), "{total:?}");
        assert_eq!(pauses.time_to_next(at, limit), limit);
    }

    #[test]
    fn a_mean_of_zero_means_no_pauses() {
        assert!(!Pauses::new(Duration::ZERO).begin(0, Instant::now()));
    }
}
