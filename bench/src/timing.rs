//! Throughput, measured so that moments in which another program had the CPU do not count.

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value};
use std::time::{Duration, Instant};

const WARM_UP: Duration = Duration::from_millis(60);
/// Long enough for a rate, short enough that a disturbance shows.
pub(crate) const DEFAULT_TIME: Duration = Duration::from_millis(300);

/// A rate is computed for each slice of this length; the median of them is the result.
const SLICE: Duration = Duration::from_millis(2);

/// The result of a measurement: numbers by name, of which `value` is the main one.
#[derive(Debug, Default)]
pub(crate) struct Metrics(Map<String, Value>);

impl Metrics {
    pub(crate) fn value(value: f64) -> Self {
        let mut metrics = Self::default();
        metrics.add("value", value);
        metrics
    }

    /// Adds a number, rounded to three decimal places.
    pub(crate) fn add(&mut self, name: &str, number: f64) {
        self.0.insert(name.to_owned(), ((number * 1e3).round() / 1e3).into());
    }

    pub(crate) fn into_json(self) -> Value {
        Value::Object(self.0)
    }
}

/// Events per second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Throughput {
    /// Of all slices: the rate of the undisturbed program.
    pub(crate) median: f64,
    /// Of the whole time, stalls included.
    pub(crate) mean: f64,
    /// CPU time of all threads of the process, in percent of one CPU.
    pub(crate) cpu_percent: f64,
}

impl Throughput {
    pub(crate) fn into_metrics(self) -> Metrics {
        let mut metrics = Metrics::value(self.median);
        metrics.add("mean", self.mean);
        metrics.add("cpu_percent", self.cpu_percent);
        metrics
    }
}

/// Calls `step` repeatedly for `time`; it returns how many events it completed.
pub(crate) fn throughput(time: Duration, mut step: impl FnMut() -> anyhow::Result<u64>) -> anyhow::Result<Throughput> {
    run_slices(WARM_UP.min(time), &mut step)?;
    let (started, cpu) = (Instant::now(), process_cpu_time());
    let (count, mut rates) = run_slices(time, &mut step)?;
    let elapsed = started.elapsed().as_secs_f64();
    let busy = process_cpu_time().saturating_sub(cpu).as_secs_f64();
    rates.sort_by(f64::total_cmp);
    Ok(Throughput { median: rates[rates.len() / 2], mean: count as f64 / elapsed, cpu_percent: busy / elapsed * 100.0 })
}

/// Runs slices for `time`, at least one. Returns the number of events and the rate of each slice.
fn run_slices(time: Duration, step: &mut impl FnMut() -> anyhow::Result<u64>) -> anyhow::Result<(u64, Vec<f64>)> {
    let started = Instant::now();
    let (mut total, mut rates) = (0, Vec::new());
    while rates.is_empty() || started.elapsed() < time {
        let (count, elapsed) = run_slice(step)?;
        total += count;
        rates.push(count as f64 / elapsed.as_secs_f64());
    }
    Ok((total, rates))
}

fn run_slice(step: &mut impl FnMut() -> anyhow::Result<u64>) -> anyhow::Result<(u64, Duration)> {
    let started = Instant::now();
    let mut count = 0;
    loop {
        count += step()?;
        let elapsed = started.elapsed();
        if elapsed >= SLICE {
            return Ok((count, elapsed));
        }
    }
}

/// CPU time of all threads of this process, in user space and in the kernel.
pub(crate) fn process_cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_one_line_of_json() {
        let mut metrics = Metrics::value(1.5);
        metrics.add("other", 2.000_04);
        assert_eq!(metrics.into_json().to_string(), r#"{"other":2.0,"value":1.5}"#);
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
        assert!(throughput(DEFAULT_TIME, || anyhow::bail!("no")).is_err());
    }
}
