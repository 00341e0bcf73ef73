//! Buffered writes to one file, by every interface that programs use for them.

use crate::aio;
use crate::liburing::Ring;
use crate::timing::{Rate, rate};
use anyhow::{Context, bail, ensure};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

/// In which order the blocks of the file are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    Random,
    Sequential,
}

/// What is written.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    pub(crate) file: PathBuf,
    /// Bytes.
    pub(crate) block: usize,
    /// Bytes, full of zeroes and in the page cache at the beginning.
    pub(crate) size: u64,
    pub(crate) pattern: Pattern,
    /// So many are submitted, then all of them waited for.
    pub(crate) depth: u32,
    pub(crate) time: Duration,
}

/// A step writes about so many blocks, so that looking at the clock costs nothing.
const STEP: u32 = 64;

pub(crate) fn measure(via: &str, workload: &Workload) -> anyhow::Result<Rate> {
    ensure!(workload.block > 0 && workload.size >= workload.block as u64, "the file is smaller than a block");
    ensure!((1..=4096).contains(&workload.depth), "a depth between 1 and 4096 is needed");
    let file = workload.prepare()?;
    match via {
        "pwrite" => pwrites(workload, &file),
        "ring" => ring_writes(workload, &file),
        "libaio" => batches(workload, aio::Linux::new(&file, &block(workload), workload.depth)?),
        "posixaio" => batches(workload, aio::Posix::new(&file, &block(workload), workload.depth)),
        _ => bail!("there is no way to write `{via}`"),
    }
}

fn block(workload: &Workload) -> Box<[u8]> {
    vec![0x5a; workload.block].into()
}

impl Workload {
    fn prepare(&self) -> anyhow::Result<File> {
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&self.file);
        let file = file.with_context(|| format!("opening {}", self.file.display()))?;
        const CHUNK: usize = 1 << 20;
        let zeroes = vec![0; CHUNK];
        let mut at = 0;
        while at < self.size {
            let len = (self.size - at).min(CHUNK as u64);
            file.write_all_at(&zeroes[..len as usize], at).context("filling the file")?;
            at += len;
        }
        Ok(file)
    }

    /// Offsets of blocks: in turn, or by xorshift.
    fn offsets(&self) -> impl FnMut() -> u64 + use<> {
        let (block, blocks, pattern) = (self.block as u64, self.size / self.block as u64, self.pattern);
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        move || {
            match pattern {
                Pattern::Random => {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                }
                Pattern::Sequential => state = state.wrapping_add(1),
            }
            state % blocks * block
        }
    }

    fn rounds(&self) -> u32 {
        (STEP / self.depth).max(1)
    }
}

fn pwrites(workload: &Workload, file: &File) -> anyhow::Result<Rate> {
    let mut next = workload.offsets();
    let block = block(workload);
    rate(workload.time, || {
        for _ in 0..STEP {
            let n = file.write_at(&block, next())?;
            ensure!(n == block.len(), "a write of {n} bytes");
        }
        Ok(u64::from(STEP))
    })
}

fn ring_writes(workload: &Workload, file: &File) -> anyhow::Result<Rate> {
    let mut ring = Ring::new(workload.depth.next_power_of_two())?;
    let mut next = workload.offsets();
    let block = block(workload);
    let (depth, rounds) = (workload.depth, workload.rounds());
    rate(workload.time, || {
        for _ in 0..rounds {
            for _ in 0..depth {
                ring.next_sqe().prep_write(file.as_raw_fd(), &block, next(), 0);
            }
            ring.round(depth, block.len() as i32)?;
        }
        Ok(u64::from(rounds * depth))
    })
}

/// An interface that takes a batch of writes and then waits for all of it.
pub(crate) trait Batch {
    /// Writes the block to each of so many offsets as the depth is.
    fn write_all(&mut self, next: &mut dyn FnMut() -> u64) -> anyhow::Result<()>;
}

fn batches(workload: &Workload, mut batch: impl Batch) -> anyhow::Result<Rate> {
    let mut next = workload.offsets();
    let rounds = workload.rounds();
    rate(workload.time, || {
        for _ in 0..rounds {
            batch.write_all(&mut next)?;
        }
        Ok(u64::from(rounds * workload.depth))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(name: &str, pattern: Pattern) -> Workload {
        let file = std::env::temp_dir().join(format!("uringlet-bench-test-{name}-{}", std::process::id()));
        Workload { file, block: 1000, size: 10_500, pattern, depth: 3, time: Duration::from_millis(5) }
    }

    #[test]
    fn offsets_stay_inside() {
        let mut next = workload("offsets", Pattern::Random).offsets();
        assert!((0..1000).map(|_| next()).all(|at| at % 1000 == 0 && at <= 9000));
        let mut next = workload("offsets", Pattern::Sequential).offsets();
        let (first, second) = (next(), next());
        assert_eq!((first + 1000) % 10_000, second);
    }

    #[test]
    fn every_interface_writes_the_blocks() {
        for via in ["pwrite", "libaio", "posixaio"] {
            let workload = workload(via, Pattern::Sequential);
            let rate = measure(via, &workload);
            let bytes = std::fs::read(&workload.file);
            let _ = std::fs::remove_file(&workload.file);
            assert!(rate.unwrap().mean > 0.0, "{via}");
            let bytes = bytes.unwrap();
            assert!(bytes.len() == 10_500 && bytes[..10_000].iter().all(|&b| b == 0x5a), "{via}");
        }
    }

    #[test]
    fn what_cannot_be_is_said() {
        let fine = workload("wrong", Pattern::Random);
        assert!(measure("pwrite", &Workload { block: 20_000, ..fine.clone() }).is_err());
        assert!(measure("pwrite", &Workload { depth: 0, ..fine.clone() }).is_err());
        assert!(measure("smoke", &fine).is_err());
        let _ = std::fs::remove_file(&fine.file);
    }
}
