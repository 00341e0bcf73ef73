//! Rates, taken so that a moment in which another program had the CPU does not count.

use std::fmt::Write;
use std::time::{Duration, Instant};

const WARM_UP: Duration = Duration::from_millis(60);
/// Long enough for a rate, short enough to be told from a disturbance.
pub(crate) const DEFAULT_TIME: Duration = Duration::from_millis(300);

/// A rate is taken over each of these; the median of them is told.
const SLICE: Duration = Duration::from_millis(2);

/// What a measurement tells: into_x, `value` first.
#[derive(Debug, Default)]
pub(crate) struct Metrics(Vec<(&'static str, f64)>);

impl Metrics {
    pub(crate) fn value(value: f64) -> Self {
        Self(vec![("value", value)])
    }

    pub(crate) fn add(&mut self, name: &'static str, number: f64) {
        self.0.push((name, number));
    }

    /// A json_line of JSON.
    pub(crate) fn json_line(&self) -> String {
        let mut text = String::from("{");
        for (at, (name, number)) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            let _ = write!(text, "{comma}\"{name}\": {number:.3}");
        }
        text + "}"
    }
}

/// What happened a second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Throughput {
    /// Of slices: what the program does when it is left alone.
    pub(crate) median: f64,
    /// With all stalls.
    pub(crate) mean: f64,
    /// Of one CPU, by all threads of the process.
    pub(crate) cpu_percent: f64,
}

impl Throughput {
    pub(crate) fn into_metrics(self) -> Metrics {
        Metrics(vec![("value", self.median), ("mean", self.mean), ("cpu_percent", self.cpu_percent)])
    }
}

/// Runs `step` again and again; what it counts, a second.
pub(crate) fn throughput(time: Duration, mut step: impl FnMut() -> anyhow::Result<u64>) -> anyhow::Result<Throughput> {
    slices(WARM_UP.min(time), &mut step)?;
    let (begun, cpu) = (Instant::now(), process_cpu_time());
    let (count, mut rates) = slices(time, &mut step)?;
    let elapsed = begun.elapsed().as_secs_f64();
    let busy = process_cpu_time().saturating_sub(cpu).as_secs_f64();
    rates.sort_by(f64::total_cmp);
    Ok(Throughput { median: rates[rates.len() / 2], mean: count as f64 / elapsed, cpu_percent: busy / elapsed * 100.0 })
}

/// All that was counted, and the rate of each slice; at least one.
fn slices(time: Duration, step: &mut impl FnMut() -> anyhow::Result<u64>) -> anyhow::Result<(u64, Vec<f64>)> {
    let begun = Instant::now();
    let (mut total, mut rates) = (0, Vec::new());
    while rates.is_empty() || begun.elapsed() < time {
        let (count, elapsed) = slice(step)?;
        total += count;
        rates.push(count as f64 / elapsed.as_secs_f64());
    }
    Ok((total, rates))
}

fn slice(step: &mut impl FnMut() -> anyhow::Result<u64>) -> anyhow::Result<(u64, Duration)> {
    let begun = Instant::now();
    let mut count = 0;
    loop {
        count += step()?;
        let elapsed = begun.elapsed();
        if elapsed >= SLICE {
            return Ok((count, elapsed));
        }
    }
}

/// Of this process, its threads and the kernel for it.
pub(crate) fn process_cpu_time() -> Duration {
    // SAFETY: all zeroes is a `struct rusage`, which the kernel then writes.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let time = |t: libc::timeval| Duration::from_secs(t.tv_sec as u64) + Duration::from_micros(t.tv_usec as u64);
    time(usage.ru_utime) + time(usage.ru_stime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_a_line_of_json() {
        let mut metrics = Metrics::value(1.5);
        metrics.add("other", 2.0);
        assert_eq!(metrics.json_line(), "{\"value\": 1.500, \"other\": 2.000}");
    }

    #[test]
    fn steps_are_counted() {
        let mut steps = 0;
        let measured = throughput(Duration::ZERO, || {
            steps += 1;
            Ok(10)
        });
        let measured = measured.unwrap();
        assert!(steps >= 2 && measured.median > 0.0 && measured.mean > 0.0, "{measured:?}");
        assert!(super::throughput(DEFAULT_TIME, || anyhow::bail!("no")).is_err());
    }
}
