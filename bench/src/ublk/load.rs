//! So many requests at a time, in batches.

use std::time::{Duration, Instant};

use super::{Op, SIZE};
use crate::echo::histogram::Histogram;
use crate::timing::{Numbers, rate};

/// What is asked of a device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) op: Op,
    pub(super) is_sequential: bool,
    /// Requests under way, at most.
    pub(super) depth: u32,
    /// Submitted together, and waited for together.
    pub(super) batch: u32,
    /// Bytes of each.
    pub(super) block: u32,
    pub(super) time: Duration,
}

/// Whoever can be asked.
pub(super) trait Device {
    /// Asks for a request of the lane's buffer, soon.
    fn push(&mut self, lane: u32, at: u64);

    /// Sends what was pushed and waits for at least so many ends: lanes.
    fn wait(&mut self, at_least: u32, ended: &mut Vec<u32>) -> anyhow::Result<()>;
}

impl Load {
    /// Requests a second; how long each took, µs.
    pub(super) fn run(&self, device: &mut impl Device) -> anyhow::Result<Numbers> {
        let mut lanes = Lanes::new(self);
        let mut histogram = Histogram::new();
        let (mut sum, mut count) = (Duration::ZERO, 0);
        let rate = rate(self.time, || {
            lanes.step(device)?;
            let now = Instant::now();
            for &lane in &lanes.ended {
                let time = now - lanes.begun[lane as usize];
                histogram.add(time);
                sum += time;
            }
            count += lanes.ended.len() as u32;
            Ok(lanes.ended.len() as u64)
        })?;
        lanes.finish(device)?;
        let mut numbers = rate.numbers();
        numbers.add("mean_us", sum.as_secs_f64() * 1e6 / f64::from(count.max(1)));
        numbers.add("p50_us", histogram.percentile_us(50.0));
        numbers.add("p99_us", histogram.percentile_us(99.0));
        Ok(numbers)
    }
}

struct Lanes {
    load: Load,
    free: Vec<u32>,
    ended: Vec<u32>,
    /// When each began.
    begun: Vec<Instant>,
    next: u64,
}

impl Lanes {
    fn new(load: &Load) -> Self {
        let free = (0..load.depth).collect();
        Self { load: *load, free, ended: Vec::new(), begun: vec![Instant::now(); load.depth as usize], next: 1 }
    }

    fn place(&mut self) -> u64 {
        let blocks = SIZE / u64::from(self.load.block);
        // A linear congruential generator, as good as need be.
        self.next = if self.load.is_sequential { self.next + 1 } else { self.next.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1) };
        (if self.load.is_sequential { self.next } else { self.next >> 20 }) % blocks * u64::from(self.load.block)
    }

    /// Fills whole batches up, and waits for one: `ended`.
    fn step(&mut self, device: &mut impl Device) -> anyhow::Result<()> {
        self.free.append(&mut self.ended);
        let now = Instant::now();
        while self.free.len() >= self.load.batch as usize {
            for _ in 0..self.load.batch {
                let at = self.place();
                if let Some(lane) = self.free.pop() {
                    self.begun[lane as usize] = now;
                    device.push(lane, at);
                }
            }
        }
        device.wait(self.load.batch, &mut self.ended)
    }

    /// Nothing is under way any more.
    fn finish(&mut self, device: &mut impl Device) -> anyhow::Result<()> {
        self.free.append(&mut self.ended);
        while self.free.len() < self.load.depth as usize {
            device.wait(1, &mut self.ended)?;
            self.free.append(&mut self.ended);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ends what it is asked for in pairs, the last first.
    #[derive(Default)]
    struct Fake {
        pushed: Vec<u32>,
        most: usize,
        all: usize,
    }

    impl Device for Fake {
        fn push(&mut self, lane: u32, at: u64) {
            assert!(!self.pushed.contains(&lane) && at.is_multiple_of(4096) && at + 4096 <= SIZE);
            self.pushed.push(lane);
            self.most = self.most.max(self.pushed.len());
        }

        fn wait(&mut self, at_least: u32, ended: &mut Vec<u32>) -> anyhow::Result<()> {
            let keep = self.pushed.len().saturating_sub(at_least.max(2) as usize);
            self.all += self.pushed.len() - keep;
            ended.extend(self.pushed.drain(keep..));
            Ok(())
        }
    }

    #[test]
    fn lanes_are_used_once_at_a_time_and_all_end() {
        for (is_sequential, depth, batch) in [(true, 1, 1), (false, 8, 1), (false, 8, 4)] {
            let load = Load { op: Op::Write, is_sequential, depth, batch, block: 4096, time: Duration::ZERO };
            let mut fake = Fake::default();
            let numbers = load.run(&mut fake).unwrap().line();
            assert!(numbers.contains("\"p50_us\""), "{numbers}");
            assert_eq!((fake.pushed.len(), fake.most), (0, depth as usize));
            assert!(fake.all > depth as usize);
        }
    }
}
