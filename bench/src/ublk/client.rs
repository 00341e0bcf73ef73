//! The user of a device in its server's process: commands on a ring of its own.

use anyhow::ensure;
use std::fs::File;
use std::os::fd::AsRawFd;
use uringlet_abi::ublk::{ClientCmd, client};

use super::Op;
use super::control::{io_command, open};
use super::load::{Device, Load};
use crate::liburing::Ring;

pub(super) struct Client {
    file: File,
    ring: Ring,
    op: Op,
    block: u32,
    buffers: Vec<Vec<u8>>,
}

impl Client {
    pub(super) fn open(device: u32, load: &Load) -> anyhow::Result<Self> {
        let file = open(&format!("/dev/uringlet/ublkb{device}"))?;
        let ring = Ring::new(load.depth.next_power_of_two())?;
        let buffers = (0..load.depth).map(|lane| vec![lane as u8; load.block as usize]).collect();
        Ok(Self { file, ring, op: load.op, block: load.block, buffers })
    }
}

impl Device for Client {
    fn push(&mut self, lane: u32, at: u64) {
        let addr = self.buffers[lane as usize].as_mut_ptr() as u64;
        let (sector, sectors) = if self.op == Op::Flush { (0, 0) } else { (at / 512, self.block / 512) };
        let cmd = ClientCmd { sector, sectors, flags: 0 };
        let command = io_command(client::BASE + self.op as u8);
        self.ring.next_sqe().prep_command(self.file.as_raw_fd(), command, addr, &cmd.to_bytes(), lane.into());
    }

    fn wait(&mut self, at_least: u32, ended: &mut Vec<u32>) -> anyhow::Result<()> {
        let expected = if self.op == Op::Flush { 0 } else { self.block as i32 };
        ensure!(self.ring.submit_and_wait(at_least) >= 0, "the wait failed");
        let mut wrong = None;
        self.ring.reap(|lane, res| {
            wrong = wrong.or((res != expected).then_some(res));
            ended.push(lane as u32);
        });
        ensure!(wrong.is_none(), "a request says {}, not {expected}", wrong.unwrap_or_default());
        Ok(())
    }
}
