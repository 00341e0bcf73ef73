//! `/dev/ublk-control`.

use super::endpoint::BrokerEndpoint;
use crate::in_process::command_bytes;
use crate::wire::{ControlCall, ControlReply, MESSAGE_MAX, Purpose};
use alloc::sync::Arc;
use alloc::vec;
use uringlet_abi::ublk::CtrlCmd;
use uringlet_core::{PendingCmd, UringCmd, VirtualFile};
use uringlet_sys::{Errno, UserPtr, user};

/// See the module.
#[derive(Debug)]
pub(super) struct BrokerControlFile {
    pub(super) broker: Arc<BrokerEndpoint>,
}

impl BrokerControlFile {
    fn command(&self, cmd: &UringCmd) -> Result<i32, Errno> {
        if !cmd.is_big {
            return Err(Errno::EINVAL);
        }
        let header = CtrlCmd::from_bytes(&command_bytes(cmd));
        let address = UserPtr::at(header.addr);
        let mut payload = vec![0; header.len.into()];
        // No partial payload: the driver returns EFAULT when it reads it.
        if address.is_null() || user::read_slice(&mut payload, address).is_err() {
            payload.clear();
        }
        let header = CtrlCmd { addr: u64::from(header.addr != 0), ..header };
        let socket = self.broker.open_connection(Purpose::Control)?.socket;
        socket.send(&ControlCall { cmd_op: cmd.op, header, payload: &payload }.to_bytes())?;
        let mut bytes = vec![0; MESSAGE_MAX];
        let (len, _) = socket.receive(&mut bytes)?;
        let answer = ControlReply::parse(&bytes[..len], header.len).ok_or(Errno::EIO)?;
        user::write_slice(address.add(answer.at.into()), answer.bytes)?;
        Ok(answer.res)
    }
}

impl VirtualFile for BrokerControlFile {
    /// All control commands: they wait for the broker.
    fn may_sleep(&self, _: &UringCmd) -> bool {
        true
    }

    fn start(&self, _: &UringCmd, pending: PendingCmd) {
        pending.complete(-Errno::EINVAL.into_raw());
    }

    fn run(&self, cmd: &UringCmd) -> i32 {
        self.command(cmd).unwrap_or_else(|errno| -errno.into_raw())
    }

    fn cancel(&self, _: &UringCmd) {}

    fn check_mmap(&self, _: u32, _: u64, _: usize) -> Result<(), Errno> {
        Err(Errno::ENODEV)
    }
}
