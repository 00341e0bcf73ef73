//! How long submit() and completions take while another file of the same ring is slow.
//!
//! One thread and one ring, as an event loop has them. A stream keeps so many writes to the slow file under way; every `PACE` one small write
//! (or read of what is cached) of one of the other files is submitted and waited for. Each io_uring_submit() is timed, and each of the other files' requests from before its
//! submission until its completion is seen. The first write of the stream is told apart: that is where an engine learns that the file is slow.

use crate::liburing::Ring;
use crate::timing::Numbers;
use anyhow::{Context, ensure};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const PACE: Duration = Duration::from_millis(2);
const OTHERS: usize = 4;
const OTHER_LEN: usize = 1 << 20;
const OTHER_BLOCK: usize = 1024;
const ENTRIES: u32 = 128;
/// The user_data of the other files' requests; the stream's are 0.
const OTHER: u64 = 1;

/// The other files' requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Others {
    Writes,
    Reads,
}

/// What is slow, and what is not.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    /// The file that the stream writes to, from its beginning to `slow_len` and over again.
    pub(crate) slow: PathBuf,
    /// Where the other files are.
    pub(crate) directory: PathBuf,
    pub(crate) slow_len: u64,
    pub(crate) slow_block: usize,
    /// What is asked of the other files.
    pub(crate) others: Others,
    /// Writes of the stream that are under way at once.
    pub(crate) slow_depth: u32,
    pub(crate) time: Duration,
}

struct Stream {
    file: File,
    block: Box<[u8]>,
    len: u64,
    at: u64,
    under_way: u32,
    done: u64,
}

#[derive(Debug, Default)]
struct Times {
    first_submit: Option<Duration>,
    submits: Vec<Duration>,
    slow_submits: Vec<Duration>,
    others: Vec<Duration>,
}

struct Loop {
    ring: Ring,
    stream: Stream,
    others: Vec<File>,
    block: [u8; OTHER_BLOCK],
    times: Times,
}

pub(crate) fn measure(scene: &Scene) -> anyhow::Result<Numbers> {
    ensure!(scene.slow_depth > 0 && scene.slow_depth < ENTRIES, "the stream's depth must lie between 1 and {}", ENTRIES - 1);
    ensure!(scene.slow_block > 0 && scene.slow_len >= scene.slow_block as u64, "the slow file is smaller than a block");
    let file = File::options().write(true).create(true).truncate(false).open(&scene.slow);
    let file = file.with_context(|| format!("opening {}", scene.slow.display()))?;
    let stream = Stream { file, block: vec![0x5a; scene.slow_block].into(), len: scene.slow_len, at: 0, under_way: 0, done: 0 };
    let paths: Vec<PathBuf> = (0..OTHERS).map(|n| scene.directory.join(format!("other-{n}"))).collect();
    let others: anyhow::Result<Vec<File>> = paths.iter().map(|path| other(path)).collect();
    let mut looping = Loop { ring: Ring::new(ENTRIES)?, stream, others: others?, block: [0x5a; OTHER_BLOCK], times: Times::default() };
    let measured = looping.run(scene);
    for path in &paths {
        std::fs::remove_file(path).with_context(|| format!("removing {}", path.display()))?;
    }
    measured?;
    numbers(looping.times, &looping.stream, scene)
}

fn other(path: &Path) -> anyhow::Result<File> {
    let file = File::options().read(true).write(true).create(true).truncate(true).open(path);
    let file = file.with_context(|| format!("opening {}", path.display()))?;
    file.write_all_at(&vec![0; OTHER_LEN], 0).with_context(|| format!("filling {}", path.display()))?;
    Ok(file)
}

impl Loop {
    fn run(&mut self, scene: &Scene) -> anyhow::Result<()> {
        self.feed(1)?;
        let begun = Instant::now();
        let mut next = begun;
        for turn in 0.. {
            if begun.elapsed() >= scene.time {
                break;
            }
            self.feed(scene.slow_depth)?;
            self.ask_other(scene.others, turn)?;
            next = (next + PACE).max(Instant::now());
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
            self.reap()?;
        }
        while self.stream.under_way > 0 {
            ensure!(self.ring.submit_and_wait(1) >= 0, "waiting failed");
            self.reap()?;
        }
        Ok(())
    }

    /// Keeps so many writes of the stream under way.
    fn feed(&mut self, depth: u32) -> anyhow::Result<()> {
        while self.stream.under_way < depth {
            let stream = &mut self.stream;
            self.ring.next_sqe().prep_write(stream.file.as_raw_fd(), &stream.block, stream.at, 0);
            stream.at = if stream.at + 2 * stream.block.len() as u64 > stream.len { 0 } else { stream.at + stream.block.len() as u64 };
            stream.under_way += 1;
            let took = self.submit()?;
            if self.times.first_submit.is_none() {
                self.times.first_submit = Some(took);
            } else {
                self.times.submits.push(took);
                self.times.slow_submits.push(took);
            }
        }
        Ok(())
    }

    fn ask_other(&mut self, others: Others, turn: usize) -> anyhow::Result<()> {
        let at = turn * OTHER_BLOCK % OTHER_LEN;
        let fd = self.others[turn % OTHERS].as_raw_fd();
        match others {
            Others::Writes => self.ring.next_sqe().prep_write(fd, &self.block, at as u64, OTHER),
            Others::Reads => self.ring.next_sqe().prep_read(fd, &mut self.block, at as u64, OTHER),
        }
        let begun = Instant::now();
        let took = self.submit()?;
        self.times.submits.push(took);
        while !self.reap()? {
            ensure!(self.ring.submit_and_wait(1) >= 0, "waiting failed");
        }
        self.times.others.push(begun.elapsed());
        Ok(())
    }

    fn submit(&mut self) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        let submitted = self.ring.submit();
        let took = begun.elapsed();
        ensure!(submitted == 1, "io_uring_submit answers {submitted}");
        Ok(took)
    }

    /// Takes what has come; whether one of the other files was among it.
    fn reap(&mut self) -> anyhow::Result<bool> {
        let (mut is_other, mut wrong) = (false, None);
        let stream = &mut self.stream;
        self.ring.reap(|user_data, res| {
            let expected = if user_data == OTHER { OTHER_BLOCK } else { stream.block.len() };
            if res != expected as i32 {
                wrong = Some(res);
            }
            if user_data == OTHER {
                is_other = true;
            } else {
                stream.under_way -= 1;
                stream.done += 1;
            }
        });
        ensure!(wrong.is_none(), "a completion says {}", wrong.unwrap_or_default());
        Ok(is_other)
    }
}

/// The value that so many of a hundred do not exceed; µs.
fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    let at = (sorted.len() * percent).div_ceil(100).clamp(1, sorted.len().max(1)) - 1;
    sorted.get(at).map_or(0.0, |time| time.as_secs_f64() * 1e6)
}

fn numbers(mut times: Times, stream: &Stream, scene: &Scene) -> anyhow::Result<Numbers> {
    ensure!(!times.others.is_empty(), "nothing was measured: the time is too short");
    times.submits.sort();
    times.slow_submits.sort();
    times.others.sort();
    let mut numbers = Numbers::value(percentile(&times.others, 99));
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
        numbers.add(name, percentile(sorted, percent));
    }
    numbers.add("first_submit_us", times.first_submit.unwrap_or_default().as_secs_f64() * 1e6);
    numbers.add("others", times.others.len() as f64);
    numbers.add("slow_writes", stream.done as f64);
    numbers.add("slow_bytes_a_second", stream.done as f64 * scene.slow_block as f64 / scene.time.as_secs_f64());
    Ok(numbers)
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
