//! How long requests took: counted in buckets 3% wide.

use std::time::Duration;

/// A power of two is parted in so many.
const PARTS: u64 = 1 << PARTS_LOG;
const PARTS_LOG: u32 = 5;

#[derive(Debug)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    all: u64,
}

impl Histogram {
    pub(crate) fn new() -> Self {
        Self { counts: vec![0; bucket(u64::MAX) + 1], all: 0 }
    }

    pub(crate) fn add(&mut self, time: Duration) {
        self.counts[bucket(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))] += 1;
        self.all += 1;
    }

    pub(crate) fn count(&self) -> u64 {
        self.all
    }

    /// In µs, what so many of a hundred did not exceed; 0 of none.
    pub(crate) fn percentile_us(&self, percent: f64) -> f64 {
        let wanted = (self.all as f64 * percent / 100.0).ceil().max(1.0) as u64;
        let mut seen = 0;
        let at = self.counts.iter().position(|&count| {
            seen += count;
            seen >= wanted
        });
        at.map_or(0.0, |at| middle(at) / 1e3)
    }
}

fn bucket(ns: u64) -> usize {
    let shift = (63 - (ns | PARTS).leading_zeros()) - PARTS_LOG;
    (u64::from(shift) * PARTS + (ns >> shift)) as usize
}

/// ns in the middle of a bucket.
fn middle(bucket: usize) -> f64 {
    let bucket = bucket as u64;
    let shift = (bucket / PARTS).saturating_sub(1);
    let least = (bucket - shift * PARTS) as f64;
    (least + 0.5) * (1_u64 << shift) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_in_order_and_narrow() {
        for ns in (0..100_000).chain([1 << 20, 1 << 40, u64::MAX / 2]) {
            assert!(bucket(ns) <= bucket(ns + 1) && bucket(ns + 1) <= bucket(ns) + 1, "{ns}");
            assert!((middle(bucket(ns)) - ns as f64).abs() <= 0.5 + ns as f64 * 0.032, "{ns}: {}", middle(bucket(ns)));
        }
    }

    #[test]
    fn percentiles_are_where_they_belong() {
        let mut histogram = Histogram::new();
        assert_eq!(histogram.percentile_us(50.0), 0.0);
        for us in 1..=1000 {
            histogram.add(Duration::from_micros(us));
        }
        assert_eq!(histogram.count(), 1000);
        assert!((histogram.percentile_us(50.0) - 500.0).abs() < 20.0 && (histogram.percentile_us(99.0) - 990.0).abs() < 35.0);
    }
}
