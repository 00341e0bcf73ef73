//! The load generator: a fixed queue depth, submitted in batches.

use std::time::{Duration, Instant};

use super::geometry::{SIZE, UblkOp};
use crate::latency_histogram::LatencyHistogram;
use crate::timing::{Metrics, throughput};

/// The requests of one measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct UblkLoad {
    pub(super) op: UblkOp,
    pub(super) is_sequential: bool,
    /// Requests in flight, at most.
    pub(super) depth: u32,
    /// Requests that are submitted and waited for together.
    pub(super) batch: u32,
    /// Length of a request, bytes.
    pub(super) block: u32,
    pub(super) time: Duration,
}

/// A client that the load generator can drive.
pub(super) trait LoadTarget {
    /// Queues a request that uses the lane's buffer.
    fn push(&mut self, lane: u32, at: u64);

    /// Submits the queued requests and waits for at least `at_least` completions, whose lanes are
    /// added to `completed`.
    fn wait(&mut self, at_least: u32, completed: &mut Vec<u32>) -> anyhow::Result<()>;
}

impl UblkLoad {
    /// Requests per second, and their latency, µs.
    pub(super) fn run(&self, device: &mut impl LoadTarget) -> anyhow::Result<Metrics> {
        let mut lanes = Lanes::new(self);
        let mut histogram = LatencyHistogram::new()?;
        let (mut sum, mut count) = (Duration::ZERO, 0);
        let rate = throughput(self.time, || {
            lanes.step(device)?;
            let now = Instant::now();
            for &lane in &lanes.completed {
                let time = now - lanes.submitted_at[lane as usize];
                histogram.add(time);
                sum += time;
            }
            count += lanes.completed.len() as u32;
            Ok(lanes.completed.len() as u64)
        })?;
        lanes.finish(device)?;
        let mut metrics = rate.into_metrics();
        metrics.add("mean_us", sum.as_secs_f64() * 1e6 / f64::from(count.max(1)));
        metrics.add("p50_us", histogram.percentile_us(50.0));
        metrics.add("p99_us", histogram.percentile_us(99.0));
        Ok(metrics)
    }
}

struct Lanes {
    load: UblkLoad,
    free: Vec<u32>,
    completed: Vec<u32>,
    /// Submission time of each lane's request.
    submitted_at: Vec<Instant>,
    next: u64,
}

impl Lanes {
    fn new(load: &UblkLoad) -> Self {
        let free = (0..load.depth).collect();
        Self { load: *load, free, completed: Vec::new(), submitted_at: vec![Instant::now(); load.depth as usize], next: 1 }
    }

    fn next_offset(&mut self) -> u64 {
        let blocks = SIZE / u64::from(self.load.block);
        // A linear congruential generator.
        self.next = if self.load.is_sequential { self.next + 1 } else { self.next.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1) };
        (if self.load.is_sequential { self.next } else { self.next >> 20 }) % blocks * u64::from(self.load.block)
    }

    /// Submits whole batches while lanes are free, then waits for one batch.
    fn step(&mut self, device: &mut impl LoadTarget) -> anyhow::Result<()> {
        self.free.append(&mut self.completed);
        let now = Instant::now();
        while self.free.len() >= self.load.batch as usize {
            for _ in 0..self.load.batch {
                let at = self.next_offset();
                if let Some(lane) = self.free.pop() {
                    self.submitted_at[lane as usize] = now;
                    device.push(lane, at);
                }
            }
        }
        device.wait(self.load.batch, &mut self.completed)
    }

    /// Waits for all requests in flight.
    fn finish(&mut self, device: &mut impl LoadTarget) -> anyhow::Result<()> {
        self.free.append(&mut self.completed);
        while self.free.len() < self.load.depth as usize {
            device.wait(1, &mut self.completed)?;
            self.free.append(&mut self.completed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Completes pushed requests in pairs, the latest first.
    #[derive(Default)]
    struct Fake {
        pushed: Vec<u32>,
        most: usize,
        all: usize,
    }

    impl LoadTarget for Fake {
        fn push(&mut self, lane: u32, at: u64) {
            assert!(!self.pushed.contains(&lane) && at.is_multiple_of(4096) && at + 4096 <= SIZE);
            self.pushed.push(lane);
            self.most = self.most.max(self.pushed.len());
        }

        fn wait(&mut self, at_least: u32, completed: &mut Vec<u32>) -> anyhow::Result<()> {
            let keep = self.pushed.len().saturating_sub(at_least.max(2) as usize);
            self.all += self.pushed.len() - keep;
            completed.extend(self.pushed.drain(keep..));
            Ok(())
        }
    }

    #[test]
    fn lanes_are_used_once_at_a_time_and_all_end() {
        for (is_sequential, depth, batch) in [(true, 1, 1), (false, 8, 1), (false, 8, 4)] {
            let load = UblkLoad { op: UblkOp::Write, is_sequential, depth, batch, block: 4096, time: Duration::ZERO };
            let mut fake = Fake::default();
            let metrics = load.run(&mut fake).unwrap().into_json().to_string();
            assert!(metrics.contains("\"p50_us\""), "{metrics}");
            assert_eq!((fake.pushed.len(), fake.most), (0, depth as usize));
            assert!(fake.all > depth as usize);
        }
    }
}
