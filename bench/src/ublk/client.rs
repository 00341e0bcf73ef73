//! Client of a device in its server's process: commands on a ring of its own.

use anyhow::ensure;
use std::fs::File;
use std::os::fd::AsRawFd;
use uringlet_abi::ublk::{ClientCmd, client};

use super::control::{io_command, open};
use super::geometry::UblkOp;
use super::load::{LoadTarget, UblkLoad};
use crate::sys::liburing::{LibRing, UringCmdSqe};

pub(super) struct InProcessClient {
    file: File,
    ring: LibRing,
    op: UblkOp,
    block: u32,
    buffers: Vec<Vec<u8>>,
}

impl InProcessClient {
    pub(super) fn open(device: u32, load: &UblkLoad) -> anyhow::Result<Self> {
        let file = open(&format!("/dev/uringlet/ublkb{device}"))?;
        let ring = LibRing::new(load.depth.next_power_of_two())?;
        let buffers = (0..load.depth).map(|lane| vec![lane as u8; load.block as usize]).collect();
        Ok(Self { file, ring, op: load.op, block: load.block, buffers })
    }
}

impl LoadTarget for InProcessClient {
    fn push(&mut self, lane: u32, at: u64) {
        let addr = self.buffers[lane as usize].as_mut_ptr() as u64;
        let (sector, sectors) = if self.op == UblkOp::Flush { (0, 0) } else { (at / 512, self.block / 512) };
        let cmd = ClientCmd { sector, sectors, flags: 0 };
        let (fd, cmd_op) = (self.file.as_raw_fd(), io_command(client::BASE + self.op as u8));
        self.ring.prep_uring_cmd(&UringCmdSqe { fd, cmd_op, addr, data: &cmd.to_bytes(), user_data: lane.into() });
    }

    fn wait(&mut self, at_least: u32, completed: &mut Vec<u32>) -> anyhow::Result<()> {
        let expected = if self.op == UblkOp::Flush { 0 } else { self.block as i32 };
        ensure!(self.ring.submit_and_wait(at_least) >= 0, "the wait failed");
        let mut wrong = None;
        self.ring.for_each_cqe(|lane, res| {
            wrong = wrong.or((res != expected).then_some(res));
            completed.push(lane as u32);
        });
        ensure!(wrong.is_none(), "a request has result {}, not {expected}", wrong.unwrap_or_default());
        Ok(())
    }
}
