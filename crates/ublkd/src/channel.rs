//! An open char device: a server's commands come in, their completions go out, over shared rings (`uringlet_sys::shm_channel`).
//!
//! The connection's socket carries bells only: a packet for each, whose bytes mean nothing. Its end is the server's. Commands are taken by the
//! connection's own thread, or, as long as that sleeps, by who waits for a request of the device ([`BlockDevice::busy_poll`]): what the server has done then needs
//! no other thread to be told.
//!
//! `commands` is locked while commands are done, and so while requests end by it (`BrokerClient::done`), of whichever front end: who is told may use the device, but
//! not wait for another request of it. To attend from there is to return at once. `out` is the innermost: no call is made under it.

use crate::packets::{ring_doorbell, wait_doorbell};
use crate::shared_buffers::SharedBuffers;
use crate::sync::{errno, lock};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno as IoErrno;
use rustix::net::{Shutdown, shutdown};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError};
use uringlet_sys::{Errno, process};
use uringlet_ublk::frontend::BlockDevice;
use uringlet_ublk::io_channel::{ChannelDirection, CorruptPeer, IoEvent, Receiver, Sender, ShmChannel, WaitDecision, capacity};
use uringlet_ublk::platform::{Platform, ServerCommand, Transport};
use uringlet_ublk::wire::{Completion, Submission};
use uringlet_ublk::{IoCommand, UblkDevice};

/// Commands that are done together.
const BATCH: usize = 64;

#[derive(Debug)]
struct CompletionQueue {
    sender: Sender,
    /// What the ring has no room for. A server that is backlog more than it has tags takes nothing any more.
    backlog: VecDeque<IoEvent>,
    is_closed: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct ServerChannel {
    socket: OwnedFd,
    device: Arc<UblkDevice<BrokerPlatform>>,
    commands: Mutex<Receiver>,
    out: Mutex<CompletionQueue>,
}

/// Makes the file of the rings of a device; and the rings in it.
pub(crate) fn create_rings(device: &UblkDevice<BrokerPlatform>) -> Result<(OwnedFd, Arc<ShmChannel>), IoErrno> {
    let (queues, depth) = device.queues();
    let capacity = capacity(queues, depth);
    let file = memfd_create("ublk-rings", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, ShmChannel::file_len(capacity))?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    let shm = ShmChannel::of_file(file.as_raw_fd(), capacity).map_err(|errno| IoErrno::from_raw_os_error(errno.into_raw()))?;
    Ok((file, Arc::new(shm)))
}

impl ServerChannel {
    pub(crate) fn new(socket: OwnedFd, device: Arc<UblkDevice<BrokerPlatform>>, shm: Arc<ShmChannel>) -> Self {
        let commands = Mutex::new(Receiver::new(Arc::clone(&shm), ChannelDirection::ToCreator));
        let sender = Sender::new(shm, ChannelDirection::FromCreator);
        Self { socket, device, commands, out: Mutex::new(CompletionQueue { sender, backlog: VecDeque::new(), is_closed: false }) }
    }

    /// Serves the server until it goes, or says what nobody understands.
    pub(crate) fn serve(self: &Arc<Self>) {
        while self.drain(&mut lock(&self.commands)).is_ok() && self.wait() {}
        // Commits of a server that has died since are commits.
        let _ = self.drain(&mut lock(&self.commands));
        let mut out = lock(&self.out);
        out.is_closed = true;
        out.backlog.clear();
    }

    /// Sleeps until there may be commands. False: there never will be.
    fn wait(&self) -> bool {
        // Bound to its own statement: nobody sleeps with the lock.
        let rest = lock(&self.commands).prepare_wait();
        rest == WaitDecision::Ready || wait_doorbell(&self.socket)
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
            self.send_backlog()?;
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

    /// Sends what is backlog. CorruptPeer is a server that takes nothing any more.
    fn send_backlog(&self) -> Result<(), CorruptPeer> {
        let mut out = lock(&self.out);
        if out.backlog.is_empty() {
            return Ok(());
        }
        let CompletionQueue { sender, backlog, .. } = &mut *out;
        while let Some(event) = backlog.front()
            && sender.put(&event.to_message()).is_ok()
        {
            backlog.pop_front();
        }
        let (queues, depth) = self.device.queues();
        let is_alive = backlog.len() <= usize::from(queues) * usize::from(depth);
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

    /// Sends a completion, which those who wait may hear of only with [`flush`](Self::flush).
    fn queue_completion(&self, event: IoEvent) {
        let mut out = lock(&self.out);
        if out.is_closed {
            return;
        }
        if !out.backlog.is_empty() || out.sender.put(&event.to_message()).is_err() {
            return out.backlog.push_back(event);
        }
        // A server that is awake begins at once.
        out.sender.publish_tail();
    }

    /// Lets go what was put.
    pub(crate) fn flush(&self) {
        let must_ring = lock(&self.out).sender.publish();
        if must_ring {
            ring_doorbell(&self.socket);
        }
    }
}

/// A command that waits for its completion.
#[derive(Debug)]
pub(crate) struct RemoteCommand {
    channel: Arc<ServerChannel>,
    queue: u16,
    tag: u16,
    cookie: u32,
}

impl ServerCommand for RemoteCommand {
    fn complete(self, res: i32) {
        let Self { queue, tag, cookie, .. } = self;
        let (iod, done) = self.channel.device.buffers().iod(queue, tag);
        self.channel.queue_completion(IoEvent { completion: Completion { queue, tag, res, done }, cookie, iod });
    }
}

/// The rings to the server's process: those of the open char device, while there is one.
#[derive(Debug, Default)]
pub(crate) struct ChannelTransport(RwLock<Option<Arc<ServerChannel>>>);

impl ChannelTransport {
    /// The char device is open, or closed.
    pub(crate) fn set_channel(&self, channel: Option<Arc<ServerChannel>>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = channel;
    }

    /// Used without the lock.
    fn channel(&self) -> Option<Arc<ServerChannel>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Transport for ChannelTransport {
    fn unplug(&self) {
        if let Some(channel) = self.channel() {
            channel.flush();
        }
    }

    fn busy_poll(&self, enough: &mut dyn FnMut() -> bool) {
        if let Some(channel) = self.channel() {
            channel.busy_poll(enough);
        }
    }
}

/// The broker.
#[derive(Debug)]
pub(crate) struct BrokerPlatform;

impl Platform for BrokerPlatform {
    type Command = RemoteCommand;
    type Buffers = SharedBuffers;
    type Transport = ChannelTransport;

    fn alloc_buffers(&self, queues: u16, depth: u16) -> Result<SharedBuffers, Errno> {
        SharedBuffers::new(queues, depth).map_err(errno)
    }

    fn cpus(&self) -> u32 {
        process::cpu_count()
    }
}
