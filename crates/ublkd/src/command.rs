//! A server's commands in the broker, whichever way they came.

use crate::surroundings::Surroundings;
use std::fmt::Debug;
use std::sync::Arc;
use uringlet_ublk::Device;
use uringlet_ublk::frontend::BlockDevice;
use uringlet_ublk::platform::Command;
use uringlet_ublk::wire::{Completion, Submission};

/// Where completions go to. No lock is held by who calls, on whatever thread.
pub(crate) trait Outlet: Send + Sync + Debug {
    /// Takes one, which may wait for [`flush`](Self::flush).
    fn put(&self, completion: Completion);

    /// Lets go what was put.
    fn flush(&self);

    /// See [`BlockDevice::attend`].
    fn attend(self: Arc<Self>, _enough: &mut dyn FnMut() -> bool) {}
}

/// A command that waits for its completion.
#[derive(Debug)]
pub(crate) struct RemoteCommand {
    outlet: Arc<dyn Outlet>,
    device: Arc<Device<Surroundings>>,
    queue: u16,
    tag: u16,
}

impl RemoteCommand {
    fn put(&self, res: i32) {
        let (_, done) = self.device.area().described(self.queue, self.tag);
        self.outlet.put(Completion { queue: self.queue, tag: self.tag, res, done });
    }
}

impl Command for RemoteCommand {
    fn complete(self, res: i32) {
        self.put(res);
        self.outlet.flush();
    }

    fn complete_plugged(self, res: i32) {
        self.put(res);
    }
}

/// Does what a server sends; what ends by it goes to `outlet`.
pub(crate) fn submit<O: Outlet + 'static>(outlet: &Arc<O>, device: &Arc<Device<Surroundings>>, submissions: &[Submission]) {
    let command = |submission: &Submission| {
        let cmd = submission.cmd;
        let Some(cmd_op) = submission.cmd_op else {
            let (queues, depth) = device.queues();
            if cmd.q_id < queues && cmd.tag < depth {
                device.cancel_io_command(&cmd);
            }
            return None;
        };
        let outlet = Arc::clone(outlet) as Arc<dyn Outlet>;
        let command = RemoteCommand { outlet, device: Arc::clone(device), queue: cmd.q_id, tag: cmd.tag };
        Some((submission.task, cmd_op, cmd, command))
    };
    device.io_commands(submissions.iter().filter_map(command));
}
