//! An open char device: a server's commands come in, their completions go out, over shared rings (`uringlet_sys::shm_channel`).
//!
//! The connection's socket carries bells only: a packet for each, whose bytes mean nothing. Its end is the server's. Commands are taken by the
//! connection's own thread, or, as long as that sleeps, by who waits for a request of the device ([`BlockDevice::busy_poll`]): what the server has done then needs
//! no other thread to be told.
//!
//! `commands` is locked while commands are done, and so while requests end by it (`Client::done`), of whichever front end: who is told may use the device, but
//! not wait for another request of it. To attend from there is to return at once. `out` is the innermost: no call is made under it.

use crate::packets::{hear_bell, ring_bell};
use crate::surroundings::{Surroundings, lock};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno as IoErrno;
use rustix::net::{Shutdown, shutdown};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use uringlet_ublk::frontend::BlockDevice;
use uringlet_ublk::io_channel::{CorruptPeer, Direction, IoEvent, Receiver, Sender, ShmChannel, WaitDecision, capacity};
use uringlet_ublk::platform::ServerCommand;
use uringlet_ublk::wire::{Completion, Submission};
use uringlet_ublk::{IoCommand, UblkDevice};

/// Commands that are done together.
const BATCH: usize = 64;

#[derive(Debug)]
struct Outgoing {
    sender: Sender,
    /// What the ring has no room for. A server that is owed more than it has tags takes nothing any more.
    owed: VecDeque<IoEvent>,
    is_over: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Channel {
    socket: OwnedFd,
    device: Arc<UblkDevice<Surroundings>>,
    commands: Mutex<Receiver>,
    out: Mutex<Outgoing>,
}

/// Makes the file of the rings of a device; and the rings in it.
pub(crate) fn rings(device: &UblkDevice<Surroundings>) -> Result<(OwnedFd, Arc<ShmChannel>), IoErrno> {
    let (queues, depth) = device.queues();
    let capacity = capacity(queues, depth);
    let file = memfd_create("ublk-rings", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, ShmChannel::file_len(capacity))?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    let exchange = ShmChannel::of_file(file.as_raw_fd(), capacity).map_err(|errno| IoErrno::from_raw_os_error(errno.into_raw()))?;
    Ok((file, Arc::new(exchange)))
}

impl Channel {
    pub(crate) fn new(socket: OwnedFd, device: Arc<UblkDevice<Surroundings>>, exchange: Arc<ShmChannel>) -> Self {
        let commands = Mutex::new(Receiver::new(Arc::clone(&exchange), Direction::ToCreator));
        let sender = Sender::new(exchange, Direction::FromCreator);
        Self { socket, device, commands, out: Mutex::new(Outgoing { sender, owed: VecDeque::new(), is_over: false }) }
    }

    /// Serves the server until it goes, or says what nobody understands.
    pub(crate) fn serve(self: &Arc<Self>) {
        while self.drain(&mut lock(&self.commands)).is_ok() && self.sleep() {}
        // Commits of a server that has died since are commits.
        let _ = self.drain(&mut lock(&self.commands));
        let mut out = lock(&self.out);
        out.is_over = true;
        out.owed.clear();
    }

    /// Sleeps until there may be commands. False: there never will be.
    fn sleep(&self) -> bool {
        // Bound to its own statement: nobody sleeps with the lock.
        let rest = lock(&self.commands).prepare_wait();
        rest == WaitDecision::Ready || hear_bell(&self.socket)
    }

    /// Does what the server has sent.
    fn drain(self: &Arc<Self>, commands: &mut Receiver) -> Result<(), CorruptPeer> {
        let mut batch = Vec::new();
        loop {
            while batch.len() < BATCH
                && let Some(message) = commands.take()?
            {
                batch.push(Submission::of_message(&message).ok_or(CorruptPeer)?);
            }
            if batch.is_empty() {
                return Ok(());
            }
            self.device.io_commands(batch.drain(..).filter_map(|(submission, cookie)| self.command(&submission, cookie)));
            self.settle()?;
        }
    }

    /// A command for the driver; nothing of what is no command.
    fn command(self: &Arc<Self>, submission: &Submission, cookie: u32) -> Option<IoCommand<RemoteCommand>> {
        let cmd = submission.cmd;
        let Some(cmd_op) = submission.cmd_op else {
            let (queues, depth) = self.device.queues();
            if cmd.q_id < queues && cmd.tag < depth {
                self.device.cancel_io_command(&cmd);
            }
            return None;
        };
        let command = RemoteCommand { channel: Arc::clone(self), queue: cmd.q_id, tag: cmd.tag, cookie };
        Some(IoCommand { task: submission.task, cmd_op, cmd, command })
    }

    /// Sends what is owed. CorruptPeer is a server that takes nothing any more.
    fn settle(&self) -> Result<(), CorruptPeer> {
        let mut out = lock(&self.out);
        if out.owed.is_empty() {
            return Ok(());
        }
        let Outgoing { sender, owed, .. } = &mut *out;
        while let Some(arrival) = owed.front()
            && sender.put(&arrival.to_message()).is_ok()
        {
            owed.pop_front();
        }
        let (queues, depth) = self.device.queues();
        let is_alive = owed.len() <= usize::from(queues) * usize::from(depth);
        drop(out);
        self.flush();
        if is_alive { Ok(()) } else { Err(CorruptPeer) }
    }

    /// Does on this thread what the server sends, until it is `enough`. At once if somebody else does it already.
    pub(crate) fn busy_poll(self: &Arc<Self>, enough: &mut dyn FnMut() -> bool) {
        let commands = match self.commands.try_lock() {
            Ok(commands) => commands,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        // Its own thread is awake, and takes what there is.
        if commands.claim_waiter() {
            self.stand_in(commands, enough);
        }
    }

    fn stand_in(self: &Arc<Self>, mut commands: MutexGuard<'_, Receiver>, enough: &mut dyn FnMut() -> bool) {
        loop {
            if self.drain(&mut commands).is_err() {
                // The connection's own thread wakes, and finds the same.
                let _ = shutdown(&self.socket, Shutdown::Both);
                return;
            }
            if enough() && commands.prepare_wait() != WaitDecision::Ready {
                return;
            }
            core::hint::spin_loop();
        }
    }

    /// Sends a completion, which those who sleep may hear of only with [`flush`](Self::flush).
    fn put(&self, arrival: IoEvent) {
        let mut out = lock(&self.out);
        if out.is_over {
            return;
        }
        if !out.owed.is_empty() || out.sender.put(&arrival.to_message()).is_err() {
            return out.owed.push_back(arrival);
        }
        // A server that is awake begins at once.
        out.sender.publish_tail();
    }

    /// Lets go what was put.
    pub(crate) fn flush(&self) {
        let must_ring = lock(&self.out).sender.publish();
        if must_ring {
            ring_bell(&self.socket);
        }
    }
}

/// A command that waits for its completion.
#[derive(Debug)]
pub(crate) struct RemoteCommand {
    channel: Arc<Channel>,
    queue: u16,
    tag: u16,
    cookie: u32,
}

impl ServerCommand for RemoteCommand {
    fn complete(self, res: i32) {
        let Self { queue, tag, cookie, .. } = self;
        let (iod, done) = self.channel.device.buffers().described(queue, tag);
        self.channel.put(IoEvent { completion: Completion { queue, tag, res, done }, cookie, iod });
    }
}
