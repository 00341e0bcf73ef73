//! An open char device: a server's commands come in and their completions go out over two rings in
//! shared memory (`uringlet_sys::shm_channel`).
//!
//! The connection's socket carries doorbells only: one packet each, whose bytes mean nothing. Its
//! end means the end of the server. Commands are taken by the connection's own thread, or, while
//! that thread sleeps, by a front end's thread that waits for a request of the device
//! ([`BlockDevice::busy_poll`]): the server's commits then reach their waiter without a wake-up.
//!
//! `commands` is locked while commands run, and thus while requests of any front end complete
//! (`BlockClient::done`). A client may use the device from there, but must not wait for another
//! request of it; `busy_poll` from there returns at once. `completions` is the innermost lock: no
//! call is made under it.

use crate::packets::{ring_doorbell, wait_doorbell};
use crate::shared_buffers::SharedBuffers;
use crate::sync::{errno, lock};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno as IoErrno;
use rustix::net::{Shutdown, shutdown};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError};
use tracing::{debug, warn};
use uringlet_sys::{Errno, process};
use uringlet_ublk::frontend::BlockDevice;
use uringlet_ublk::io_channel::{ChannelDirection, CorruptPeer, IoEvent, Receiver, Sender, ShmChannel, WaitDecision, capacity};
use uringlet_ublk::platform::{Platform, ServerCommand, Transport};
use uringlet_ublk::wire::{Completion, Submission};
use uringlet_ublk::{IoCommand, UblkDevice};

/// Commands handed to the driver in one batch.
const BATCH: usize = 64;

#[derive(Debug)]
struct PendingCompletions {
    sender: Sender,
    /// Completions that the ring has no room for. A server with a backlog longer than its number of
    /// tags does not read its ring.
    backlog: VecDeque<IoEvent>,
    is_closed: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct ServerChannel {
    socket: OwnedFd,
    device: Arc<UblkDevice<BrokerPlatform>>,
    commands: Mutex<Receiver>,
    completions: Mutex<PendingCompletions>,
}

/// Creates the sealed file of a device's rings, and maps the rings.
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
        Self {
            socket,
            device,
            commands,
            completions: Mutex::new(PendingCompletions { sender, backlog: VecDeque::new(), is_closed: false }),
        }
    }

    /// Serves the server until it disconnects or sends what is no command.
    pub(crate) fn serve(self: &Arc<Self>) {
        let result = loop {
            let drained = self.drain(&mut lock(&self.commands));
            if drained.is_err() || !self.wait() {
                break drained;
            }
        };
        if result.is_err() {
            warn!(device = self.device.id(), "the server's rings are corrupt or not read: disconnected");
        }
        // What a server committed before it died counts.
        let _ = self.drain(&mut lock(&self.commands));
        let mut completions = lock(&self.completions);
        completions.is_closed = true;
        completions.backlog.clear();
    }

    /// Blocks until there may be commands. False: the server has disconnected.
    fn wait(&self) -> bool {
        // A statement of its own, so that the lock is released before the thread blocks.
        let decision = lock(&self.commands).prepare_wait();
        decision == WaitDecision::Ready || wait_doorbell(&self.socket)
    }

    /// Runs the commands that the server has sent.
    fn drain(self: &Arc<Self>, commands: &mut Receiver) -> Result<(), CorruptPeer> {
        let mut batch = Vec::new();
        loop {
            while batch.len() < BATCH
                && let Some(message) = commands.take()?
            {
                batch.push(Submission::from_message(&message).ok_or(CorruptPeer)?);
            }
            if batch.is_empty() {
                return Ok(());
            }
            self.device.io_commands(batch.drain(..).filter_map(|(submission, cookie)| self.command(&submission, cookie)));
            self.send_backlog()?;
        }
    }

    /// The driver's form of a command. `None` for a cancellation, which is executed here.
    fn command(self: &Arc<Self>, submission: &Submission, cookie: u32) -> Option<IoCommand<RemoteCommand>> {
        let cmd = submission.cmd;
        let Some(cmd_op) = submission.cmd_op else {
            let (queues, depth) = self.device.queues();
            if cmd.q_id < queues && cmd.tag < depth {
                self.device.cancel_io_command(&cmd);
            }
            return None;
        };
        debug!(device = self.device.id(), queue = cmd.q_id, tag = cmd.tag, cmd_op, result = cmd.result, "I/O command");
        let command = RemoteCommand { channel: Arc::clone(self), queue: cmd.q_id, tag: cmd.tag, cookie };
        Some(IoCommand { task: submission.task, cmd_op, cmd, command })
    }

    /// Sends the backlog. `CorruptPeer`: the server does not read its ring.
    fn send_backlog(&self) -> Result<(), CorruptPeer> {
        let mut completions = lock(&self.completions);
        if completions.backlog.is_empty() {
            return Ok(());
        }
        let PendingCompletions { sender, backlog, .. } = &mut *completions;
        while let Some(event) = backlog.front()
            && sender.put(&event.to_message()).is_ok()
        {
            backlog.pop_front();
        }
        let (queues, depth) = self.device.queues();
        let is_alive = backlog.len() <= usize::from(queues) * usize::from(depth);
        drop(completions);
        self.flush();
        if is_alive { Ok(()) } else { Err(CorruptPeer) }
    }

    /// Runs the server's commands on this thread until `enough` says so. Returns at once if another
    /// thread runs them.
    pub(crate) fn busy_poll(self: &Arc<Self>, enough: &mut dyn FnMut() -> bool) {
        let commands = match self.commands.try_lock() {
            Ok(commands) => commands,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        // If the claim fails, the connection's own thread is awake and takes the commands.
        if commands.claim_waiter() {
            self.poll_as_waiter(commands, enough);
        }
    }

    fn poll_as_waiter(self: &Arc<Self>, mut commands: MutexGuard<'_, Receiver>, enough: &mut dyn FnMut() -> bool) {
        loop {
            if self.drain(&mut commands).is_err() {
                // The connection's own thread wakes up and sees the same corruption.
                let _ = shutdown(&self.socket, Shutdown::Both);
                return;
            }
            if enough() && commands.prepare_wait() != WaitDecision::Ready {
                return;
            }
            core::hint::spin_loop();
        }
    }

    /// Puts a completion into the ring. A server that sleeps is woken by [`flush`](Self::flush).
    fn queue_completion(&self, event: IoEvent) {
        let mut completions = lock(&self.completions);
        if completions.is_closed {
            return;
        }
        if !completions.backlog.is_empty() || completions.sender.put(&event.to_message()).is_err() {
            return completions.backlog.push_back(event);
        }
        // A server that is awake sees it at once.
        completions.sender.publish_tail();
    }

    /// Publishes the completions put so far and wakes the server if it sleeps.
    pub(crate) fn flush(&self) {
        let must_ring = lock(&self.completions).sender.publish();
        if must_ring {
            ring_doorbell(&self.socket);
        }
    }
}

/// A server's command that waits for its completion.
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
        debug!(device = self.channel.device.id(), queue, tag, res, "completion");
        let (iod, done) = self.channel.device.buffers().iod(queue, tag);
        self.channel.queue_completion(IoEvent { completion: Completion { queue, tag, res, done }, cookie, iod });
    }
}

/// The rings to the server's process: those of the open char device, while there is one.
#[derive(Debug, Default)]
pub(crate) struct ChannelTransport(RwLock<Option<Arc<ServerChannel>>>);

impl ChannelTransport {
    /// The char device was opened or closed.
    pub(crate) fn set_channel(&self, channel: Option<Arc<ServerChannel>>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = channel;
    }

    /// A copy, so that the lock is not held during use.
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

/// The driver's platform in the broker.
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
