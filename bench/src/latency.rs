//! Latency of submit() and of completions while another file of the same ring is slow.
//!
//! One thread and one ring, as in an event loop. A stream keeps `slow_depth` writes to the slow
//! file in flight. Every `PACE`, one small write to one of the other files (or a cached read) is
//! submitted and waited for. Each io_uring_submit() is timed, and each request to the other files
//! from before its submission until its completion is seen. The first write of the stream is
//! reported separately: with it an engine learns that the file is slow.

use crate::sys::liburing::LibRing;
use crate::timing::Metrics;
use anyhow::{Context, ensure};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const PACE: Duration = Duration::from_millis(2);
const OTHER_FILES: usize = 4;
const OTHER_LEN: usize = 1 << 20;
const OTHER_BLOCK: usize = 1024;
const ENTRIES: u32 = 128;
/// The user_data of requests to the other files. The stream's is 0.
const OTHER: u64 = 1;

/// The requests to the other files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OtherFilesOp {
    Writes,
    Reads,
}

/// The slow stream, and the requests beside it.
#[derive(Clone, Debug)]
pub(crate) struct LatencyWorkload {
    /// The file that the stream writes to: from the start to `slow_len`, then from the start again.
    pub(crate) slow: PathBuf,
    /// Directory of the other files.
    pub(crate) directory: PathBuf,
    pub(crate) slow_len: u64,
    pub(crate) slow_block: usize,
    /// Kind of requests to the other files.
    pub(crate) others: OtherFilesOp,
    /// Writes of the stream in flight.
    pub(crate) slow_depth: u32,
    pub(crate) time: Duration,
}

struct SlowStream {
    file: File,
    block: Box<[u8]>,
    len: u64,
    offset: u64,
    in_flight: u32,
    done: u64,
}

#[derive(Debug, Default)]
struct Timings {
    first_submit: Option<Duration>,
    submits: Vec<Duration>,
    slow_submits: Vec<Duration>,
    others: Vec<Duration>,
}

struct EventLoop {
    ring: LibRing,
    stream: SlowStream,
    others: Vec<File>,
    block: [u8; OTHER_BLOCK],
    times: Timings,
}

pub(crate) fn measure(workload: &LatencyWorkload) -> anyhow::Result<Metrics> {
    ensure!(workload.slow_depth > 0 && workload.slow_depth < ENTRIES, "the stream's depth must lie between 1 and {}", ENTRIES - 1);
    ensure!(workload.slow_block > 0 && workload.slow_len >= workload.slow_block as u64, "the slow file is smaller than a block");
    let file = File::options().write(true).create(true).truncate(false).open(&workload.slow);
    let file = file.with_context(|| format!("opening {}", workload.slow.display()))?;
    let stream =
        SlowStream { file, block: vec![0x5a; workload.slow_block].into(), len: workload.slow_len, offset: 0, in_flight: 0, done: 0 };
    let paths: Vec<PathBuf> = (0..OTHER_FILES).map(|n| workload.directory.join(format!("other-{n}"))).collect();
    let others: anyhow::Result<Vec<File>> = paths.iter().map(|path| other(path)).collect();
    let mut event_loop =
        EventLoop { ring: LibRing::new(ENTRIES)?, stream, others: others?, block: [0x5a; OTHER_BLOCK], times: Timings::default() };
    let measured = event_loop.run(workload);
    for path in &paths {
        std::fs::remove_file(path).with_context(|| format!("removing {}", path.display()))?;
    }
    measured?;
    metrics(event_loop.times, &event_loop.stream, workload)
}

fn other(path: &Path) -> anyhow::Result<File> {
    let file = File::options().read(true).write(true).create(true).truncate(true).open(path);
    let file = file.with_context(|| format!("opening {}", path.display()))?;
    file.write_all_at(&vec![0; OTHER_LEN], 0).with_context(|| format!("filling {}", path.display()))?;
    Ok(file)
}

impl EventLoop {
    fn run(&mut self, workload: &LatencyWorkload) -> anyhow::Result<()> {
        self.fill_stream(1)?;
        let started = Instant::now();
        let mut next = started;
        for round in 0.. {
            if started.elapsed() >= workload.time {
                break;
            }
            self.fill_stream(workload.slow_depth)?;
            self.run_other(workload.others, round)?;
            next = (next + PACE).max(Instant::now());
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
            self.reap()?;
        }
        while self.stream.in_flight > 0 {
            ensure!(self.ring.submit_and_wait(1) >= 0, "waiting failed");
            self.reap()?;
        }
        Ok(())
    }

    /// Keeps `depth` writes of the stream in flight.
    fn fill_stream(&mut self, depth: u32) -> anyhow::Result<()> {
        while self.stream.in_flight < depth {
            let stream = &mut self.stream;
            self.ring.prep_write(stream.file.as_raw_fd(), &stream.block, stream.offset, 0);
            stream.offset =
                if stream.offset + 2 * stream.block.len() as u64 > stream.len { 0 } else { stream.offset + stream.block.len() as u64 };
            stream.in_flight += 1;
            let elapsed = self.submit()?;
            if self.times.first_submit.is_none() {
                self.times.first_submit = Some(elapsed);
            } else {
                self.times.submits.push(elapsed);
                self.times.slow_submits.push(elapsed);
            }
        }
        Ok(())
    }

    fn run_other(&mut self, others: OtherFilesOp, round: usize) -> anyhow::Result<()> {
        let offset = round * OTHER_BLOCK % OTHER_LEN;
        let fd = self.others[round % OTHER_FILES].as_raw_fd();
        match others {
            OtherFilesOp::Writes => self.ring.prep_write(fd, &self.block, offset as u64, OTHER),
            OtherFilesOp::Reads => self.ring.prep_read(fd, &mut self.block, offset as u64, OTHER),
        }
        let started = Instant::now();
        let elapsed = self.submit()?;
        self.times.submits.push(elapsed);
        while !self.reap()? {
            ensure!(self.ring.submit_and_wait(1) >= 0, "waiting failed");
        }
        self.times.others.push(started.elapsed());
        Ok(())
    }

    fn submit(&mut self) -> anyhow::Result<Duration> {
        let started = Instant::now();
        let submitted = self.ring.submit();
        let elapsed = started.elapsed();
        ensure!(submitted == 1, "io_uring_submit answers {submitted}");
        Ok(elapsed)
    }

    /// Reaps all completions. True if one of them belongs to the other files.
    fn reap(&mut self) -> anyhow::Result<bool> {
        let (mut saw_other, mut unexpected) = (false, None);
        let stream = &mut self.stream;
        self.ring.for_each_cqe(|user_data, res| {
            let expected = if user_data == OTHER { OTHER_BLOCK } else { stream.block.len() };
            if usize::try_from(res) != Ok(expected) {
                unexpected = Some(res);
            }
            if user_data == OTHER {
                saw_other = true;
            } else {
                stream.in_flight -= 1;
                stream.done += 1;
            }
        });
        ensure!(unexpected.is_none(), "a completion has result {}", unexpected.unwrap_or_default());
        Ok(saw_other)
    }
}

/// The smallest value that `percent` of all values do not exceed, µs.
fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    let offset = (sorted.len() * percent).div_ceil(100).clamp(1, sorted.len().max(1)) - 1;
    sorted.get(offset).map_or(0.0, |time| time.as_secs_f64() * 1e6)
}

fn metrics(mut times: Timings, stream: &SlowStream, workload: &LatencyWorkload) -> anyhow::Result<Metrics> {
    ensure!(!times.others.is_empty(), "nothing was measured: the time is too short");
    times.submits.sort();
    times.slow_submits.sort();
    times.others.sort();
    let mut metrics = Metrics::value(percentile(&times.others, 99));
    for (name, sorted, percent) in [
        ("submit_p50_us", &times.submits, 50),
        ("submit_p99_us", &times.submits, 99),
        ("submit_max_us", &times.submits, 100),
        ("slow_submit_p50_us", &times.slow_submits, 50),
        ("slow_submit_p99_us", &times.slow_submits, 99),
        ("slow_submit_max_us", &times.slow_submits, 100),
        ("other_p50_us", &times.others, 50),
        ("other_p99_us", &times.others, 99),
        ("other_max_us", &times.others, 100),
    ] {
        metrics.add(name, percentile(sorted, percent));
    }
    metrics.add("first_submit_us", times.first_submit.unwrap_or_default().as_secs_f64() * 1e6);
    metrics.add("others", times.others.len() as f64);
    metrics.add("slow_writes", stream.done as f64);
    metrics.add("slow_bytes_a_second", stream.done as f64 * workload.slow_block as f64 / workload.time.as_secs_f64());
    Ok(metrics)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_ranks() {
        let times: Vec<Duration> = (1..=200).map(Duration::from_micros).collect();
        let of = |percent| percentile(&times, percent).round();
        assert_eq!([of(50), of(99), of(100)], [100.0, 198.0, 200.0]);
        assert_eq!(percentile(&times[..1], 99).round(), 1.0);
        assert_eq!(percentile(&[], 99), 0.0);
    }
}
