//! Latencies of requests, recorded with three significant digits.

use hdrhistogram::Histogram;
use std::time::Duration;

/// A histogram of nanoseconds.
#[derive(Debug)]
pub(crate) struct LatencyHistogram(Histogram<u64>);

impl LatencyHistogram {
    /// Longer latencies count as this one.
    const MAX_NS: u64 = 1 << 40;
    const SIGNIFICANT_DIGITS: u8 = 3;

    pub(crate) fn new() -> anyhow::Result<Self> {
        Ok(Self(Histogram::new_with_max(Self::MAX_NS, Self::SIGNIFICANT_DIGITS)?))
    }

    pub(crate) fn add(&mut self, latency: Duration) {
        self.0.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    /// The latency that `percent` of all requests do not exceed, µs; 0 without requests.
    pub(crate) fn percentile_us(&self, percent: f64) -> f64 {
        self.0.value_at_percentile(percent) as f64 / 1e3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_have_three_digits() {
        let mut histogram = LatencyHistogram::new().unwrap();
        assert_eq!(histogram.percentile_us(50.0), 0.0);
        for us in 1..=1000 {
            histogram.add(Duration::from_micros(us));
        }
        assert_eq!(histogram.count(), 1000);
        let is_near = |measured: f64, expected: f64| (measured - expected).abs() <= expected / 1000.0;
        assert!(is_near(histogram.percentile_us(50.0), 500.0) && is_near(histogram.percentile_us(99.0), 990.0));
    }

    #[test]
    fn latencies_beyond_the_range_count_as_the_longest() {
        let mut histogram = LatencyHistogram::new().unwrap();
        histogram.add(Duration::from_secs(100_000));
        assert!(histogram.percentile_us(50.0) >= 1e9);
    }
}
