//! The driver's platform inside an attached program.

use super::buffers::MemfdBuffers;
use crate::platform::{Caller, DirectTransport, Platform, ServerCommand};
use uringlet_core::PendingCmd;
use uringlet_sys::{Errno, process};

/// An attached program as the driver's platform.
#[derive(Debug)]
pub struct InProcessPlatform;

impl ServerCommand for PendingCmd {
    fn complete(self, res: i32) {
        PendingCmd::complete(self, res);
    }
}

impl Platform for InProcessPlatform {
    type Command = PendingCmd;
    type Buffers = MemfdBuffers;
    type Transport = DirectTransport;

    fn alloc_buffers(&self, queues: u16, depth: u16) -> Result<MemfdBuffers, Errno> {
        MemfdBuffers::new(queues, depth)
    }

    fn cpus(&self) -> u32 {
        process::cpu_count()
    }
}

/// The sender of every control command: this process, as the administrator.
pub(super) fn caller() -> Caller {
    let (uid, gid) = process::user_and_group();
    Caller { uid, gid, is_admin: true }
}
