//! Client of a block device: O_DIRECT, through the kernel's ring.

use anyhow::{Context, ensure};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::geometry::UblkOp;
use super::load::{LoadTarget, UblkLoad};
use crate::sys::liburing::LibRing;
use uringlet_abi::{Opcode, Sqe};

/// O_DIRECT wants aligned addresses.
#[derive(Clone)]
#[repr(align(4096))]
struct Page([u8; 4096]);

pub(super) struct BlockDeviceClient {
    file: File,
    ring: LibRing,
    op: UblkOp,
    block: u32,
    buffers: Vec<Vec<Page>>,
}

impl BlockDeviceClient {
    pub(super) fn open(path: &Path, load: &UblkLoad) -> anyhow::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).custom_flags(libc::O_DIRECT).open(path).with_context(|| path.display().to_string())?;
        let ring = LibRing::new(load.depth.next_power_of_two())?;
        let pages = load.block.div_ceil(4096) as usize;
        let buffers = (0..load.depth).map(|lane| vec![Page([lane as u8; 4096]); pages]).collect();
        Ok(Self { file, ring, op: load.op, block: load.block, buffers })
    }
}

impl LoadTarget for BlockDeviceClient {
    fn push(&mut self, lane: u32, at: u64) {
        let opcode = if self.op == UblkOp::Read { Opcode::Read as u8 } else { Opcode::Write as u8 };
        let addr = self.buffers[lane as usize][0].0.as_mut_ptr() as u64;
        *self.ring.get_sqe() =
            Sqe { opcode, fd: self.file.as_raw_fd(), off: at, addr, len: self.block, user_data: lane.into(), ..Sqe::default() };
    }

    fn wait(&mut self, at_least: u32, completed: &mut Vec<u32>) -> anyhow::Result<()> {
        ensure!(self.ring.submit_and_wait(at_least) >= 0, "the wait failed");
        let (mut wrong, expected) = (None, self.block as i32);
        self.ring.for_each_cqe(|lane, res| {
            wrong = wrong.or((res != expected).then_some(res));
            completed.push(lane as u32);
        });
        ensure!(wrong.is_none(), "a request has result {}, not {expected}", wrong.unwrap_or_default());
        Ok(())
    }
}
