//! Metadata operations in batches: system calls one after the other, or a ring's.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, open, statx, unlink};
use uringlet_abi::{Opcode, Sqe};

use crate::sys::liburing::LibRing;
use crate::timing::Metrics;

/// The operations of one measurement.
#[derive(Clone, Debug)]
pub(crate) struct MetaWorkload {
    /// Its files are made here, and removed.
    pub(crate) directory: PathBuf,
    /// Operations that are submitted together.
    pub(crate) batch: u32,
    pub(crate) time: Duration,
}

/// One kind of operation, on each file of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MetaOp {
    Statx,
    /// Opens, then closes all.
    Open,
    Unlink,
    Create,
}

impl MetaOp {
    fn named(name: &str) -> anyhow::Result<Self> {
        Ok(match name {
            "statx" => Self::Statx,
            "open" => Self::Open,
            "unlink" => Self::Unlink,
            "create" => Self::Create,
            _ => bail!("there is no metadata operation `{name}`"),
        })
    }

    fn open_flags(self) -> OFlags {
        if self == Self::Create { OFlags::CREATE | OFlags::EXCL | OFlags::RDWR } else { OFlags::RDONLY }
    }
}

/// The files of a batch.
struct BatchFiles(Vec<CString>);

impl BatchFiles {
    fn of(workload: &MetaWorkload) -> anyhow::Result<Self> {
        let path = |n: u32| workload.directory.join(format!("uringlet-bench-{}-{n}", std::process::id()));
        let paths = (0..workload.batch).map(|n| CString::new(path(n).as_os_str().as_bytes()));
        Ok(Self(paths.collect::<Result<_, _>>()?))
    }

    /// Makes them, or sees to it that there are none.
    fn prepare(&self, op: MetaOp) -> anyhow::Result<()> {
        for path in &self.0 {
            if op == MetaOp::Create {
                let _ = unlink(path.as_c_str());
            } else {
                let flags = OFlags::CREATE | OFlags::RDWR;
                open(path.as_c_str(), flags, Mode::RWXU).with_context(|| format!("making {}", path.to_string_lossy()))?;
            }
        }
        Ok(())
    }
}

impl Drop for BatchFiles {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = unlink(path.as_c_str());
        }
    }
}

/// The median time of an operation, ns.
pub(crate) fn measure(via: &str, op: &str, workload: &MetaWorkload) -> anyhow::Result<Metrics> {
    ensure!((1..=4096).contains(&workload.batch), "a batch between 1 and 4096 is needed");
    ensure!(workload.directory.is_dir(), "{} is no directory", workload.directory.display());
    let (op, files) = (MetaOp::named(op)?, BatchFiles::of(workload)?);
    match via {
        "calls" => repeat(workload, || files.prepare(op), || run_calls(op, &files)),
        "ring" => {
            let mut ring = LibRing::new(workload.batch.next_power_of_two())?;
            repeat(workload, || files.prepare(op), || run_ring(op, &files, &mut ring))
        }
        _ => bail!("there is no interface `{via}` for metadata"),
    }
}

/// Times batches; what prepares them is not counted.
fn repeat(
    workload: &MetaWorkload,
    prepare: impl Fn() -> anyhow::Result<()>,
    mut run: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Metrics> {
    let (started, mut times) = (Instant::now(), Vec::new());
    while times.is_empty() || started.elapsed() < workload.time {
        prepare()?;
        let begun = Instant::now();
        run()?;
        times.push(begun.elapsed().as_secs_f64() * 1e9 / f64::from(workload.batch));
    }
    times.sort_by(f64::total_cmp);
    Ok(Metrics::value(times[times.len() / 2]))
}

fn run_calls(op: MetaOp, files: &BatchFiles) -> anyhow::Result<()> {
    let mut opened: Vec<OwnedFd> = Vec::new();
    for path in &files.0 {
        let path = path.as_c_str();
        match op {
            MetaOp::Statx => drop(statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS)?),
            MetaOp::Unlink => unlink(path)?,
            MetaOp::Open | MetaOp::Create => opened.push(open(path, op.open_flags(), Mode::RWXU)?),
        }
    }
    Ok(())
}

fn run_ring(op: MetaOp, files: &BatchFiles, ring: &mut LibRing) -> anyhow::Result<()> {
    match op {
        MetaOp::Statx => {
            let mut found = vec![[0_u64; STATX_WORDS]; files.0.len()];
            for (path, found) in files.0.iter().zip(&mut found) {
                let (len, off) = (StatxFlags::BASIC_STATS.bits(), found.as_mut_ptr() as u64);
                *ring.get_sqe() = Sqe { len, off, ..of_path(Opcode::Statx, path) };
            }
            complete(ring, found.len()).map(drop)
        }
        MetaOp::Unlink => {
            files.0.iter().for_each(|path| *ring.get_sqe() = of_path(Opcode::Unlinkat, path));
            complete(ring, files.0.len()).map(drop)
        }
        MetaOp::Open | MetaOp::Create => {
            let (len, op_flags) = (Mode::RWXU.bits(), op.open_flags().bits());
            files.0.iter().for_each(|path| *ring.get_sqe() = Sqe { len, op_flags, ..of_path(Opcode::Openat, path) });
            let opened = complete(ring, files.0.len())?;
            opened.iter().for_each(|&fd| *ring.get_sqe() = Sqe { opcode: Opcode::Close as u8, fd, ..Sqe::default() });
            complete(ring, opened.len()).map(drop)
        }
    }
}

/// `struct statx`, in words of 8 bytes.
const STATX_WORDS: usize = 32;

fn of_path(opcode: Opcode, path: &CStr) -> Sqe {
    Sqe { opcode: opcode as u8, fd: CWD.as_raw_fd(), addr: path.as_ptr() as u64, ..Sqe::default() }
}

/// Submits so many SQEs and waits for them all. Returns their results, in order of completion.
fn complete(ring: &mut LibRing, n: usize) -> anyhow::Result<Vec<i32>> {
    let mut results = Vec::with_capacity(n);
    let submitted = ring.submit_and_wait(u32::try_from(n)?);
    ensure!(usize::try_from(submitted) == Ok(n), "submitted {submitted} of {n}");
    ring.for_each_cqe(|_, res| results.push(res));
    while results.len() < n {
        ensure!(ring.submit_and_wait(1) >= 0, "waiting failed");
        ring.for_each_cqe(|_, res| results.push(res));
    }
    let failed = results.iter().find(|&&res| res < 0);
    ensure!(failed.is_none(), "a completion failed: {}", std::io::Error::from_raw_os_error(-failed.unwrap_or(&0)));
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_timed_and_leave_nothing() {
        let directory = std::env::temp_dir().join(format!("uringlet-bench-meta-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let workload = MetaWorkload { directory: directory.clone(), batch: 3, time: Duration::from_millis(2) };
        for op in ["statx", "open", "unlink", "create"] {
            let value = measure("calls", op, &workload).unwrap().into_json()["value"].as_f64().unwrap();
            assert!(value > 0.0, "{op}");
            assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0, "{op}");
        }
        assert!(measure("calls", "nothing", &workload).is_err() && measure("smoke", "open", &workload).is_err());
        assert!(measure("calls", "open", &MetaWorkload { batch: 0, ..workload }).is_err());
        std::fs::remove_dir(&directory).unwrap();
    }
}
