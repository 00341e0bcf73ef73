//! Random reads of one file: from the page cache, past it, and from a file that is not in it.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use anyhow::{Context, bail, ensure};
use rustix::fs::{Advice, OFlags, fadvise};

use crate::sys::liburing::LibRing;
use crate::timing::{Metrics, throughput};
use crate::workload::{FileWorkload, STEP};

/// Where the data comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadSource {
    /// The page cache.
    Cached,
    /// The device, by O_DIRECT.
    Direct,
    /// The device, as the page cache does not have it yet. Each block is read once before the cache
    /// is dropped again.
    Cold,
}

impl ReadSource {
    fn named(name: &str) -> anyhow::Result<Self> {
        Ok(match name {
            "cached" => Self::Cached,
            "direct" => Self::Direct,
            "cold" => Self::Cold,
            _ => bail!("there is no source `{name}` of reads"),
        })
    }
}

/// Alignment of buffers and blocks that O_DIRECT accepts on all devices.
const ALIGNMENT: usize = 4096;

/// Buffers of one block each.
struct ReadBuffers {
    bytes: Vec<u8>,
    start: usize,
    block: usize,
}

impl ReadBuffers {
    fn new(count: u32, block: usize) -> Self {
        let bytes = vec![0; count as usize * block + ALIGNMENT];
        let start = bytes.as_ptr().align_offset(ALIGNMENT);
        Self { bytes, start, block }
    }

    fn get(&mut self, index: u32) -> &mut [u8] {
        let from = self.start + index as usize * self.block;
        &mut self.bytes[from..from + self.block]
    }
}

/// The file while it is read.
struct ReadFile {
    file: File,
    source: ReadSource,
    blocks: u64,
    /// Reads since the cache was dropped.
    reads: u64,
}

impl ReadFile {
    fn open(source: ReadSource, workload: &FileWorkload) -> anyhow::Result<Self> {
        let file = workload.prepare()?;
        // Only clean pages can be dropped from the cache.
        file.sync_all()?;
        let blocks = workload.size / workload.block as u64;
        let file = if source == ReadSource::Direct {
            let flags = OFlags::DIRECT.bits().cast_signed();
            File::options().read(true).custom_flags(flags).open(&workload.file).context("opening with O_DIRECT")?
        } else {
            file
        };
        if source == ReadSource::Cold {
            // Without read-ahead: each read has to wait.
            fadvise(&file, 0, None, Advice::Random)?;
        }
        Ok(Self { file, source, blocks, reads: blocks })
    }

    /// Called before so many reads.
    fn expect(&mut self, reads: u64) -> anyhow::Result<()> {
        self.reads += reads;
        if self.source == ReadSource::Cold && self.reads > self.blocks {
            fadvise(&self.file, 0, None, Advice::DontNeed)?;
            self.reads = reads;
        }
        Ok(())
    }

    /// Each block once, in an order that no read-ahead expects; then again.
    fn offsets(&self, workload: &FileWorkload) -> anyhow::Result<impl FnMut() -> u64 + use<>> {
        const STRIDE: u64 = 7919;
        let (block, blocks) = (workload.block as u64, self.blocks);
        ensure!(!blocks.is_multiple_of(STRIDE), "a file of another length is needed");
        let mut at = 0;
        Ok(move || {
            at = (at + STRIDE) % blocks;
            at * block
        })
    }
}

/// The time of a read, ns.
pub(crate) fn measure(via: &str, source: &str, workload: &FileWorkload) -> anyhow::Result<Metrics> {
    let source = ReadSource::named(source)?;
    ensure!(workload.block.is_multiple_of(ALIGNMENT) && workload.size.is_multiple_of(workload.block as u64), "blocks are not pages");
    let file = ReadFile::open(source, workload)?;
    let reads = match via {
        "pread" => run_pread(file, workload)?,
        "ring" => run_ring(file, workload)?,
        _ => bail!("there is no interface `{via}` for reads"),
    };
    Ok(Metrics::value(1e9 / reads))
}

/// Reads per second.
fn run_pread(mut file: ReadFile, workload: &FileWorkload) -> anyhow::Result<f64> {
    let mut next_offset = file.offsets(workload)?;
    let mut buffers = ReadBuffers::new(1, workload.block);
    let reads = throughput(workload.time, || {
        file.expect(u64::from(STEP))?;
        for _ in 0..STEP {
            let n = file.file.read_at(buffers.get(0), next_offset())?;
            ensure!(n == workload.block, "a read of {n} bytes");
        }
        Ok(u64::from(STEP))
    })?;
    Ok(reads.median)
}

fn run_ring(mut file: ReadFile, workload: &FileWorkload) -> anyhow::Result<f64> {
    let mut next_offset = file.offsets(workload)?;
    let (depth, batches) = (workload.depth, workload.batches_per_step());
    let mut buffers = ReadBuffers::new(depth, workload.block);
    let mut ring = LibRing::new(depth.next_power_of_two())?;
    let whole = i32::try_from(workload.block)?;
    let reads = throughput(workload.time, || {
        file.expect(u64::from(batches * depth))?;
        for _ in 0..batches {
            for index in 0..depth {
                ring.prep_read(file.file.as_raw_fd(), buffers.get(index), next_offset(), 0);
            }
            ring.submit_all(depth, whole)?;
        }
        Ok(u64::from(batches * depth))
    })?;
    Ok(reads.median)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Pattern;
    use std::time::Duration;

    fn workload(name: &str) -> FileWorkload {
        let file = std::env::temp_dir().join(format!("uringlet-bench-read-{name}-{}", std::process::id()));
        FileWorkload { file, block: 4096, size: 40 * 4096, pattern: Pattern::Random, depth: 3, time: Duration::from_millis(5) }
    }

    #[test]
    fn every_source_is_read() {
        for source in ["cached", "cold"] {
            let workload = workload(source);
            let measured = measure("pread", source, &workload);
            let _ = std::fs::remove_file(&workload.file);
            assert!(measured.unwrap().into_json()["value"].as_f64().unwrap() > 0.0, "{source}");
        }
        let wrong = workload("wrong");
        assert!(measure("pread", "hot", &wrong).is_err() && measure("mmap", "cached", &wrong).is_err());
        let _ = std::fs::remove_file(&wrong.file);
    }

    #[test]
    fn each_block_is_read_once_before_any_is_read_again() {
        let workload = workload("once");
        let file = ReadFile::open(ReadSource::Cached, &workload).unwrap();
        let mut next_offset = file.offsets(&workload).unwrap();
        let seen: std::collections::BTreeSet<u64> = (0..40).map(|_| next_offset()).collect();
        let _ = std::fs::remove_file(&workload.file);
        assert_eq!(seen.len(), 40);
    }
}
