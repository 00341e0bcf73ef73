//! `/dev/ublk-control` and `/dev/ublkcN`.

use super::platform::{InProcessPlatform, caller};
use crate::control::Driver;
use crate::device::{IoCommand, UblkDevice};
use crate::frontend::BlockDevice;
use crate::platform::Payload;
use alloc::sync::Arc;
use uringlet_abi::ublk::{CtrlCmd, IoCmd, IoDesc, io};
use uringlet_core::{PendingCmd, UringCmd, VirtualFile};
use uringlet_sys::{Errno, UserPtr, thread, user};

/// The first bytes of a command.
pub(crate) fn command_bytes<const N: usize>(cmd: &UringCmd) -> [u8; N] {
    core::array::from_fn(|i| cmd.data[i])
}

/// The memory at a control command's address.
struct ProgramPayload(UserPtr);

impl Payload for ProgramPayload {
    fn read(&mut self, at: usize, bytes: &mut [u8]) -> Result<(), Errno> {
        user::read_slice(bytes, self.0.add(at))
    }

    fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), Errno> {
        user::write_slice(self.0.add(at), bytes)
    }
}

/// `/dev/ublk-control`.
#[derive(Debug)]
pub(super) struct DriverControlFile {
    pub(super) driver: Arc<Driver<InProcessPlatform>>,
}

impl VirtualFile for DriverControlFile {
    /// All control commands: some wait for I/O commands that the same thread submits later.
    fn may_sleep(&self, _: &UringCmd) -> bool {
        true
    }

    fn start(&self, _: &UringCmd, pending: PendingCmd) {
        pending.complete(-Errno::EINVAL.into_raw());
    }

    fn run(&self, cmd: &UringCmd) -> i32 {
        if !cmd.is_big {
            return -Errno::EINVAL.into_raw();
        }
        let header = CtrlCmd::from_bytes(&command_bytes(cmd));
        let result = self.driver.control(&caller(), cmd.op, header, &mut ProgramPayload(UserPtr::at(header.addr)));
        result.err().map_or(0, |errno| -errno.into_raw())
    }

    fn cancel(&self, _: &UringCmd) {}

    fn check_mmap(&self, _: u32, _: u64, _: usize) -> Result<(), Errno> {
        Err(Errno::ENODEV)
    }
}

/// An open `/dev/ublkcN`.
#[derive(Debug)]
pub(super) struct DriverCharFile {
    device: Arc<UblkDevice<InProcessPlatform>>,
}

impl DriverCharFile {
    pub(super) fn open(device: Arc<UblkDevice<InProcessPlatform>>, flags: u32) -> Result<(i32, Self), Errno> {
        device.open()?;
        match device.buffers().open(flags) {
            Ok(fd) => Ok((fd, Self { device })),
            Err(errno) => {
                device.close();
                Err(errno)
            }
        }
    }
}

impl VirtualFile for DriverCharFile {
    fn may_sleep(&self, _: &UringCmd) -> bool {
        false
    }

    fn start(&self, cmd: &UringCmd, pending: PendingCmd) {
        self.device.io_commands([IoCommand {
            task: cmd.task,
            cmd_op: cmd.op,
            cmd: IoCmd::from_bytes(&command_bytes(cmd)),
            command: pending,
        }]);
    }

    fn run(&self, _: &UringCmd) -> i32 {
        -Errno::EINVAL.into_raw()
    }

    fn cancel(&self, cmd: &UringCmd) {
        self.device.cancel_io_command(&IoCmd::from_bytes(&command_bytes(cmd)));
    }

    fn check_mmap(&self, prot: u32, offset: u64, len: usize) -> Result<(), Errno> {
        check_mmap(self.device.queues(), prot, offset, len)
    }
}

/// Checks mmap(2) of a char device: only all descriptors of a queue, read-only.
pub(crate) fn check_mmap((queues, depth): (u16, u16), prot: u32, offset: u64, len: usize) -> Result<(), Errno> {
    const PROT_WRITE: u32 = 2;
    const PAGE: usize = 4096;
    if prot & PROT_WRITE != 0 {
        return Err(Errno::EPERM);
    }
    let descriptors = (depth as usize * IoDesc::SIZE).next_multiple_of(PAGE);
    if offset >= u64::from(queues) * io::DESC_STRIDE || len.next_multiple_of(PAGE) != descriptors {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

impl Drop for DriverCharFile {
    /// The server is lost. A ring's lock may be held here, and the ring's commands complete now: so
    /// it happens on another thread.
    fn drop(&mut self) {
        let device = Arc::clone(&self.device);
        let closing = Arc::clone(&device);
        if thread::spawn("ublk-close", move || closing.close()).is_err() {
            device.close();
        }
    }
}
