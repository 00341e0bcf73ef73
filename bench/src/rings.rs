//! What rings cost: the time to make and close one, and the resources of many that wait.

use std::fs;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use rustix::fd::AsRawFd;
use rustix::pipe::pipe;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::sys::liburing::LibRing;
use crate::timing::{Metrics, throughput};

const WAITING_ENTRIES: u32 = 8;

/// The time to make and close a ring of so many entries, ns; or what `count` rings take, each with
/// a read that waits: bytes, or a number.
pub(crate) fn measure(op: &str, count: u32, time: Duration) -> anyhow::Result<Metrics> {
    match op {
        "make" => make(count, time),
        "rss" => resources(count, resident_bytes),
        "mappings" => resources(count, || Ok(fs::read_to_string("/proc/self/maps")?.lines().count())),
        "descriptors" => resources(count, || Ok(fs::read_dir("/proc/self/fd")?.count())),
        _ => bail!("there is no figure `{op}` of rings"),
    }
}

fn make(entries: u32, time: Duration) -> anyhow::Result<Metrics> {
    let rings = throughput(time, || {
        drop(LibRing::new(entries)?);
        Ok(1)
    })?;
    Ok(Metrics::value(1e9 / rings.median))
}

fn resources(count: u32, figure: impl Fn() -> anyhow::Result<usize>) -> anyhow::Result<Metrics> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    let (from, _to) = pipe()?;
    let mut byte = [0];
    // What the first ring of a process starts is not theirs.
    let first = LibRing::new(WAITING_ENTRIES)?;
    let before = figure()?;
    let mut rings = Vec::new();
    for n in 0..count {
        let mut ring = LibRing::new(WAITING_ENTRIES).with_context(|| format!("ring {n}"))?;
        ring.prep_read(from.as_raw_fd(), &mut byte, u64::MAX, 0);
        ensure!(ring.submit() == 1, "ring {n} did not take its request");
        rings.push(ring);
    }
    let taken = figure()?.saturating_sub(before);
    drop((rings, first));
    Ok(Metrics::value(taken as f64))
}

/// Resident memory, bytes.
fn resident_bytes() -> anyhow::Result<usize> {
    let statm = fs::read_to_string("/proc/self/statm")?;
    let pages: usize = statm.split(' ').nth(1).context("/proc/self/statm is short")?.parse()?;
    Ok(pages * rustix::param::page_size())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_the_process_are_read() {
        assert!(resident_bytes().unwrap() > 0);
        assert!(measure("smell", 1, Duration::ZERO).is_err());
    }
}
