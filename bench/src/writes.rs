//! Buffered writes to one file, through each interface that programs use for them.

use crate::sys::aio::{self, BatchWriter};
use crate::sys::liburing::LibRing;
use crate::timing::{Throughput, throughput};
use anyhow::{Context, bail, ensure};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

/// The order in which the blocks of the file are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    Random,
    Sequential,
}

/// The writes of one measurement.
#[derive(Clone, Debug)]
pub(crate) struct WriteWorkload {
    pub(crate) file: PathBuf,
    /// Length of a write, bytes.
    pub(crate) block: usize,
    /// Length of the file, bytes. It starts full of zeroes and in the page cache.
    pub(crate) size: u64,
    pub(crate) pattern: Pattern,
    /// Writes that are submitted together; the next batch follows when all are complete.
    pub(crate) depth: u32,
    pub(crate) time: Duration,
}

/// Blocks per step: enough to make the clock readings between steps negligible.
const STEP: u32 = 64;

pub(crate) fn measure(via: &str, workload: &WriteWorkload) -> anyhow::Result<Throughput> {
    ensure!(workload.block > 0 && workload.size >= workload.block as u64, "the file is smaller than a block");
    ensure!((1..=4096).contains(&workload.depth), "a depth between 1 and 4096 is needed");
    let file = workload.prepare()?;
    match via {
        "pwrite" => run_pwrite(workload, &file),
        "ring" => run_ring(workload, &file),
        "libaio" => run_batches(workload, aio::LinuxAio::new(&file, &block(workload), workload.depth)?),
        "posixaio" => run_batches(workload, aio::PosixAio::new(&file, &block(workload), workload.depth)),
        _ => bail!("there is no interface `{via}` for writes"),
    }
}

fn block(workload: &WriteWorkload) -> Box<[u8]> {
    vec![0x5a; workload.block].into()
}

impl WriteWorkload {
    fn prepare(&self) -> anyhow::Result<File> {
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&self.file);
        let file = file.with_context(|| format!("opening {}", self.file.display()))?;
        const CHUNK: usize = 1 << 20;
        let zeroes = vec![0; CHUNK];
        let mut offset = 0;
        while offset < self.size {
            let len = (self.size - offset).min(CHUNK as u64);
            file.write_all_at(&zeroes[..len as usize], offset).context("filling the file")?;
            offset += len;
        }
        Ok(file)
    }

    /// Offsets of blocks: ascending, or from a xorshift generator.
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

    fn batches_per_step(&self) -> u32 {
        (STEP / self.depth).max(1)
    }
}

fn run_pwrite(workload: &WriteWorkload, file: &File) -> anyhow::Result<Throughput> {
    let mut next_offset = workload.offsets();
    let block = block(workload);
    throughput(workload.time, || {
        for _ in 0..STEP {
            let n = file.write_at(&block, next_offset())?;
            ensure!(n == block.len(), "a write of {n} bytes");
        }
        Ok(u64::from(STEP))
    })
}

fn run_ring(workload: &WriteWorkload, file: &File) -> anyhow::Result<Throughput> {
    let mut ring = LibRing::new(workload.depth.next_power_of_two())?;
    let mut next_offset = workload.offsets();
    let block = block(workload);
    let (depth, batches_per_step) = (workload.depth, workload.batches_per_step());
    throughput(workload.time, || {
        for _ in 0..batches_per_step {
            for _ in 0..depth {
                ring.prep_write(file.as_raw_fd(), &block, next_offset(), 0);
            }
            ring.submit_all(depth, block.len() as i32)?;
        }
        Ok(u64::from(batches_per_step * depth))
    })
}

fn run_batches(workload: &WriteWorkload, mut batch: impl BatchWriter) -> anyhow::Result<Throughput> {
    let mut next_offset = workload.offsets();
    let batches_per_step = workload.batches_per_step();
    throughput(workload.time, || {
        for _ in 0..batches_per_step {
            batch.write_all(&mut next_offset)?;
        }
        Ok(u64::from(batches_per_step * workload.depth))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(name: &str, pattern: Pattern) -> WriteWorkload {
        let file = std::env::temp_dir().join(format!("uringlet-bench-test-{name}-{}", std::process::id()));
        WriteWorkload { file, block: 1000, size: 10_500, pattern, depth: 3, time: Duration::from_millis(5) }
    }

    #[test]
    fn offsets_stay_inside_the_file() {
        let mut next_offset = workload("offsets", Pattern::Random).offsets();
        assert!((0..1000).map(|_| next_offset()).all(|offset| offset % 1000 == 0 && offset <= 9000));
        let mut next_offset = workload("offsets", Pattern::Sequential).offsets();
        let (first, second) = (next_offset(), next_offset());
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
    fn impossible_workloads_are_refused() {
        let fine = workload("wrong", Pattern::Random);
        assert!(measure("pwrite", &WriteWorkload { block: 20_000, ..fine.clone() }).is_err());
        assert!(measure("pwrite", &WriteWorkload { depth: 0, ..fine.clone() }).is_err());
        assert!(measure("smoke", &fine).is_err());
        let _ = std::fs::remove_file(&fine.file);
    }
}
