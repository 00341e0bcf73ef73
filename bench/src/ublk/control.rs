//! Control commands of `/dev/ublk-control`: adding, starting and deleting a device.

use anyhow::{Context, ensure};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use uringlet_abi::ublk::{CtrlCmd, DevInfo, ParamBasic, ctrl, feature, param};

use super::geometry::{DataPath, MAX_BYTES, SIZE};
use crate::sys::liburing::{LibRing, UringCmdSqe};
use uringlet_abi::setup;

/// Encodes an I/O command, or a client command, by its number.
pub(super) const fn io_command(nr: u8) -> u32 {
    command(nr, 16)
}

/// `_IOWR('u', nr, size)`.
const fn command(nr: u8, size: u32) -> u32 {
    3 << 30 | size << 16 | (b'u' as u32) << 8 | nr as u32
}

/// An open control device, and the device that it has added.
pub(super) struct Control {
    file: File,
    ring: LibRing,
    id: u32,
}

pub(super) fn open(path: &str) -> anyhow::Result<File> {
    OpenOptions::new().read(true).write(true).open(path).with_context(|| format!("{path} (is this run under `uringlet run`?)"))
}

impl Control {
    pub(super) fn open() -> anyhow::Result<Self> {
        Ok(Self { file: open("/dev/ublk-control")?, ring: LibRing::with_flags(4, setup::SQE128)?, id: u32::MAX })
    }

    fn send(&mut self, nr: u8, payload: &mut [u8], data: u64) -> anyhow::Result<()> {
        let addr = payload.as_mut_ptr() as u64;
        let header = CtrlCmd { dev_id: self.id, queue_id: u16::MAX, len: payload.len() as u16, addr, data, ..CtrlCmd::default() };
        let (fd, cmd_op) = (self.file.as_raw_fd(), command(nr, 32));
        self.ring.prep_uring_cmd(&UringCmdSqe { fd, cmd_op, addr: 0, data: &header.to_bytes(), user_data: 0 });
        self.ring.submit_all(1, 0).with_context(|| format!("control command {nr:#x}"))
    }

    /// Adds a device of one queue and returns its id.
    pub(super) fn add(&mut self, data_path: DataPath, depth: u32) -> anyhow::Result<u32> {
        let flags = if data_path == DataPath::GetData { feature::NEED_GET_DATA } else { 0 };
        let info = DevInfo {
            nr_hw_queues: 1,
            queue_depth: depth as u16,
            max_io_buf_bytes: MAX_BYTES,
            dev_id: self.id,
            flags: flags | feature::CMD_IOCTL_ENCODE,
            ..DevInfo::default()
        };
        let mut bytes = info.to_bytes();
        self.send(ctrl::ADD_DEV, &mut bytes, 0)?;
        self.id = DevInfo::from_bytes(&bytes).dev_id;
        let basic = ParamBasic {
            // Without a volatile cache no flush reaches the server.
            attrs: param::ATTR_VOLATILE_CACHE,
            logical_bs_shift: 9,
            physical_bs_shift: 12,
            io_opt_shift: 12,
            io_min_shift: 9,
            max_sectors: MAX_BYTES / 512,
            dev_sectors: SIZE / 512,
            ..ParamBasic::default()
        };
        let mut params = [0; 8 + ParamBasic::SIZE];
        params[..4].copy_from_slice(&(8 + ParamBasic::SIZE as u32).to_le_bytes());
        params[4..8].copy_from_slice(&param::BASIC.to_le_bytes());
        params[8..].copy_from_slice(&basic.to_bytes());
        self.send(ctrl::SET_PARAMS, &mut params, 0)?;
        Ok(self.id)
    }

    /// Waits until the server has fetched all tags.
    pub(super) fn start(&mut self) -> anyhow::Result<()> {
        ensure!(self.id != u32::MAX, "no device was added");
        self.send(ctrl::START_DEV, &mut [], std::process::id().into())
    }

    pub(super) fn stop(&mut self) -> anyhow::Result<()> {
        self.send(ctrl::STOP_DEV, &mut [], 0)
    }

    pub(super) fn delete(&mut self) -> anyhow::Result<()> {
        self.send(ctrl::DEL_DEV, &mut [], 0)
    }
}
