//! The file of a measurement, and the order in which its blocks are read or written.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};

/// The order of the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    Random,
    Sequential,
}

/// The transfers of one measurement.
#[derive(Clone, Debug)]
pub(crate) struct FileWorkload {
    pub(crate) file: PathBuf,
    /// Length of a transfer, bytes.
    pub(crate) block: usize,
    /// Length of the file, bytes. It starts full of zeroes and in the page cache.
    pub(crate) size: u64,
    pub(crate) pattern: Pattern,
    /// Transfers that are submitted together; the next batch follows when all are complete.
    pub(crate) depth: u32,
    pub(crate) time: Duration,
}

/// Blocks per step: enough to make the clock readings between steps negligible.
pub(crate) const STEP: u32 = 64;

impl FileWorkload {
    pub(crate) fn prepare(&self) -> anyhow::Result<File> {
        ensure!(self.block > 0 && self.size >= self.block as u64, "the file is smaller than a block");
        ensure!((1..=4096).contains(&self.depth), "a depth between 1 and 4096 is needed");
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
    pub(crate) fn offsets(&self) -> impl FnMut() -> u64 + use<> {
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

    pub(crate) fn batches_per_step(&self) -> u32 {
        (STEP / self.depth).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(pattern: Pattern) -> FileWorkload {
        FileWorkload { file: PathBuf::new(), block: 1000, size: 10_500, pattern, depth: 3, time: Duration::ZERO }
    }

    #[test]
    fn offsets_stay_inside_the_file() {
        let mut next_offset = workload(Pattern::Random).offsets();
        assert!((0..1000).map(|_| next_offset()).all(|offset| offset % 1000 == 0 && offset <= 9000));
        let mut next_offset = workload(Pattern::Sequential).offsets();
        let (first, second) = (next_offset(), next_offset());
        assert_eq!((first + 1000) % 10_000, second);
    }
}
