//! Buffered writes to one file, through each interface that programs use for them.

use crate::sys::aio::{self, BatchWriter};
use crate::sys::liburing::LibRing;
use crate::timing::{Throughput, throughput};
use crate::workload::{FileWorkload, STEP};
use anyhow::{bail, ensure};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

pub(crate) fn measure(via: &str, workload: &FileWorkload) -> anyhow::Result<Throughput> {
    let file = workload.prepare()?;
    match via {
        "pwrite" => run_pwrite(workload, &file),
        "ring" => run_ring(workload, &file),
        "libaio" => run_batches(workload, aio::LinuxAio::new(&file, &block(workload), workload.depth)?),
        "posixaio" => run_batches(workload, aio::PosixAio::new(&file, &block(workload), workload.depth)),
        _ => bail!("there is no interface `{via}` for writes"),
    }
}

fn block(workload: &FileWorkload) -> Box<[u8]> {
    vec![0x5a; workload.block].into()
}

fn run_pwrite(workload: &FileWorkload, file: &File) -> anyhow::Result<Throughput> {
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

fn run_ring(workload: &FileWorkload, file: &File) -> anyhow::Result<Throughput> {
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

fn run_batches(workload: &FileWorkload, mut batch: impl BatchWriter) -> anyhow::Result<Throughput> {
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
    use crate::workload::Pattern;
    use std::time::Duration;

    fn workload(name: &str, pattern: Pattern) -> FileWorkload {
        let file = std::env::temp_dir().join(format!("uringlet-bench-test-{name}-{}", std::process::id()));
        FileWorkload { file, block: 1000, size: 10_500, pattern, depth: 3, time: Duration::from_millis(5) }
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
        assert!(measure("pwrite", &FileWorkload { block: 20_000, ..fine.clone() }).is_err());
        assert!(measure("pwrite", &FileWorkload { depth: 0, ..fine.clone() }).is_err());
        assert!(measure("smoke", &fine).is_err());
        let _ = std::fs::remove_file(&fine.file);
    }
}
