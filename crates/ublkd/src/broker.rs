//! The broker: listens, and serves one connection a thread.

use crate::channel::{self, BrokerPlatform, ServerChannel};
use crate::control_payload::ControlPayload;
use crate::hangup::HangupMonitor;
use crate::packets::{self, PacketReceiver, send, send_with};
use crate::runtime_dir;
use crate::shared_buffers::SharedBuffers;
use crate::sync::{errno, lock};
use anyhow::{Context, bail, ensure};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FlockOperation, flock};
use rustix::net::{RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, UCred, accept_with, bind, listen, sockopt};
use std::fs::File;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Release;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tracing::{debug, info, warn};
use uringlet_abi::ublk::{CtrlCmd, ctrl};
use uringlet_sys::Errno;
use uringlet_sys::sync::AtomicBool;
use uringlet_ublk::frontend::{BlockDevice, FrontEnd};
use uringlet_ublk::platform::Caller;
use uringlet_ublk::wire::{ControlCall, ControlReply, Hello, Purpose, VERSION, Welcome};
use uringlet_ublk::{Driver, UblkDevice};

/// Connections at a time; further ones are closed at once.
pub const CONNECTIONS_MAX: usize = 512;
/// How often a broker with an idle limit checks whether it is reached.
const IDLE_CHECK_INTERVAL: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
const LISTEN_BACKLOG: i32 = 64;

/// A broker that listens.
#[derive(Debug)]
pub struct Broker {
    shared: Arc<BrokerShared>,
    listener: OwnedFd,
    path: PathBuf,
    /// The socket's inode, because another broker may have replaced the socket.
    inode: u64,
    /// Locked for the lifetime of the process; the kernel unlocks it however the process ends.
    _lock: File,
}

#[derive(Debug)]
struct BrokerShared {
    driver: Driver<BrokerPlatform>,
    front_ends: Vec<Arc<dyn FrontEnd>>,
    connections: Mutex<usize>,
    dir: PathBuf,
    /// The numbers last written to the runtime directory; the lock serialises updates.
    published: Mutex<Option<Vec<u32>>>,
    hangups: HangupMonitor,
    /// Readable from the request to stop on.
    stop_eventfd: OwnedFd,
}

/// A handle with which other threads stop a running broker.
#[derive(Clone, Debug)]
pub struct BrokerHandle(Arc<BrokerShared>);

impl BrokerHandle {
    /// Lets [`Broker::run`] return.
    pub fn stop(&self) {
        // An error means that the counter is full, so the request is pending already.
        let _ = rustix::io::write(&self.0.stop_eventfd, &1_u64.to_ne_bytes());
    }

    /// Connections that are open now.
    #[must_use]
    pub fn connections(&self) -> usize {
        *self.0.connections()
    }
}

impl Broker {
    /// Listens in `dir`, creating it if necessary, and offers devices through `front_ends`.
    ///
    /// # Errors
    /// Another broker runs there; the directory is accessible to others; those of bind(2).
    pub fn new(dir: &Path, front_ends: Vec<Arc<dyn FrontEnd>>) -> anyhow::Result<Self> {
        runtime_dir::prepare(dir)?;
        let lock = File::create(dir.join("ublkd.lock")).context("creating the lock file")?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            bail!("another broker runs in {}", dir.display());
        }
        let path = runtime_dir::socket(dir);
        // The lock is held here, so a socket found belongs to a broker that has ended.
        let _ = std::fs::remove_file(&path);
        let listener = packets::socket()?;
        bind(&listener, &SocketAddrUnix::new(&path)?).with_context(|| format!("binding {}", path.display()))?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600))?;
        listen(&listener, LISTEN_BACKLOG)?;
        rustix::io::ioctl_fionbio(&listener, true)?;
        let stop_eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let driver = Driver::new(BrokerPlatform, front_ends.clone());
        let shared = BrokerShared {
            driver,
            front_ends,
            connections: Mutex::new(0),
            dir: dir.to_owned(),
            published: Mutex::default(),
            hangups: HangupMonitor::new()?,
            stop_eventfd,
        };
        let inode = inode(&path).context("the socket was removed")?;
        shared.publish_devices();
        info!(socket = %path.display(), "listening");
        Ok(Self { shared: Arc::new(shared), listener, path, inode, _lock: lock })
    }

    /// A handle that stops it.
    #[must_use]
    pub fn handle(&self) -> BrokerHandle {
        BrokerHandle(Arc::clone(&self.shared))
    }

    /// Serves until it is stopped. With a limit it also ends after `idle` without devices and
    /// connections, and once it is unreachable: its socket was removed and the last connection has
    /// ended. Remaining devices are stopped.
    ///
    /// # Errors
    /// Those of poll(2).
    pub fn run(&self, idle: Option<Duration>) -> anyhow::Result<()> {
        let mut busy = Instant::now();
        loop {
            let hangups = self.shared.hangups.fd();
            let mut fds = [
                PollFd::new(&self.listener, PollFlags::IN),
                PollFd::new(&self.shared.stop_eventfd, PollFlags::IN),
                PollFd::from_borrowed_fd(hangups, PollFlags::IN),
            ];
            match poll(&mut fds, idle.map(|_| &IDLE_CHECK_INTERVAL)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error).context("waiting for connections"),
            }
            if fds[1].revents().contains(PollFlags::IN) {
                break;
            }
            if fds[2].revents().contains(PollFlags::IN) && self.shared.hangups.poll_hangups() {
                self.shared.driver.recheck_waiters();
            }
            if let Ok(socket) = accept_with(&self.listener, SocketFlags::CLOEXEC)
                && let Err(error) = BrokerShared::accept(&self.shared, socket)
            {
                // The socket is closed by now, which tells the client.
                warn!("connection refused: {error:#}");
            }
            let has_no_connections = *self.shared.connections() == 0;
            if !has_no_connections || !self.shared.driver.ids().is_empty() {
                busy = Instant::now();
            }
            if idle.is_some_and(|idle| busy.elapsed() >= idle || (has_no_connections && inode(&self.path) != Some(self.inode))) {
                break;
            }
        }
        self.shared.stop_all();
        info!(dir = %self.shared.dir.display(), "stopped");
        Ok(())
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if inode(&self.path) == Some(self.inode) {
            // An error means that it is gone already.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn inode(path: &Path) -> Option<u64> {
    std::fs::symlink_metadata(path).ok().map(|found| found.ino())
}

impl BrokerShared {
    fn connections(&self) -> MutexGuard<'_, usize> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(self: &Arc<Self>, socket: OwnedFd) -> anyhow::Result<()> {
        let peer = sockopt::socket_peercred(&socket)?;
        ensure!(peer.uid.is_root() || peer.uid == rustix::process::geteuid(), "user {} is neither this user nor root", peer.uid.as_raw());
        let mut connections = self.connections();
        ensure!(*connections < CONNECTIONS_MAX, "{CONNECTIONS_MAX} connections are open already");
        let shared = Arc::clone(self);
        std::thread::Builder::new().name("ublkd-conn".into()).spawn(move || {
            let pid = peer.pid.as_raw_nonzero().get();
            debug!(pid, "connected");
            match shared.run_connection(socket, peer) {
                Ok(()) => debug!(pid, "disconnected"),
                Err(error) => debug!(pid, "disconnected: {error:#}"),
            }
            *shared.connections() -= 1;
        })?;
        *connections += 1;
        Ok(())
    }

    fn run_connection(&self, socket: OwnedFd, peer: UCred) -> anyhow::Result<()> {
        let mut receiver = PacketReceiver::new();
        let hello = Hello::parse(receiver.receive(&socket, RecvFlags::empty())?.0).context("the first message is not of this protocol")?;
        let welcome = |res| Welcome { version: VERSION, res, ..Welcome::default() };
        if hello.version != VERSION {
            send(&socket, &welcome(-Errno::EPROTONOSUPPORT.into_raw()).to_bytes())?;
            return Ok(());
        }
        match hello.purpose {
            Purpose::Control => {
                send(&socket, &welcome(0).to_bytes())?;
                self.serve_control(&socket, &mut receiver, peer)
            }
            Purpose::List => {
                send(&socket, &welcome(0).to_bytes())?;
                let ids: Vec<u8> = self.driver.ids().iter().flat_map(|id| id.to_le_bytes()).collect();
                Ok(send(&socket, &ids)?)
            }
            Purpose::BlockNode(id) => {
                let res = self.driver.device(id).map_or(-Errno::ENODEV.into_raw(), |_| 0);
                send(&socket, &welcome(res).to_bytes())?;
                let node = self.front_ends.iter().find_map(|front_end| front_end.block_node(id)).unwrap_or_default();
                Ok(send(&socket, node.as_bytes())?)
            }
            Purpose::Open(id) => {
                let device = self.driver.device(id).ok_or(Errno::ENOENT);
                self.serve_char_device(socket, id, device, peer.pid.as_raw_nonzero().get())
            }
            Purpose::Adopt(id) => {
                let (_, fds) = receiver.receive(&socket, RecvFlags::empty())?;
                let Ok([file]) = <[OwnedFd; 1]>::try_from(fds) else { bail!("the server has brought no file") };
                self.adopt(socket, id, file, peer.pid.as_raw_nonzero().get())
            }
        }
    }

    fn serve_control(&self, socket: &OwnedFd, receiver: &mut PacketReceiver, peer: UCred) -> anyhow::Result<()> {
        let caller = Caller { uid: peer.uid.as_raw(), gid: peer.gid.as_raw(), is_admin: true };
        loop {
            let (bytes, _) = receiver.receive(socket, RecvFlags::empty())?;
            if bytes.is_empty() {
                return Ok(());
            }
            let call = ControlCall::parse(bytes).context("malformed control command")?;
            let mut packet = ControlPayload::new(call.payload, call.header.len);
            let monitored = self.hangups.add(socket)?;
            let result = self.driver.control_cancellable(&monitored.hung_up, &caller, call.cmd_op, call.header, &mut packet);
            drop(monitored);
            let res = result.err().map_or(0, |errno| -errno.into_raw());
            log_control(&call, res, peer.pid.as_raw_nonzero().get());
            self.update_record(call.header.dev_id);
            self.publish_devices();
            // Fits: a payload has a 16-bit length.
            send(socket, &ControlReply { res, at: packet.at as u16, bytes: &packet.written }.to_bytes())?;
        }
    }

    /// Keeps the record in the device's file true.
    fn update_record(&self, id: u32) {
        if let Some(device) = self.driver.device(id) {
            device.buffers().update_record(|| device.record());
        }
    }

    /// Serves the server of a device that another broker has had.
    fn adopt(&self, socket: OwnedFd, id: u32, file: OwnedFd, pid: i32) -> anyhow::Result<()> {
        let brought = SharedBuffers::adopt(file).map_err(errno);
        let adopted = brought.and_then(|(record, buffers)| {
            if record.info.dev_id != id {
                return Err(Errno::EINVAL);
            }
            // The record stays: this broker may be killed before the device is live again.
            self.driver.adopt(&record, buffers)
        });
        info!(device = id, pid, res = adopted.as_ref().err().map_or(0, |errno| -errno.into_raw()), "a server brings its device");
        self.publish_devices();
        let is_gone = AtomicBool::new(false);
        std::thread::scope(|scope| {
            if adopted.is_ok() {
                let start = || self.start_adopted(&is_gone, id, pid);
                std::thread::Builder::new().name("ublkd-start".into()).spawn_scoped(scope, start)?;
            }
            let served = self.serve_char_device(socket, id, adopted, pid);
            is_gone.store(true, Release);
            self.driver.recheck_waiters();
            served
        })
    }

    /// Starts a device once its server has fetched all tags.
    fn start_adopted(&self, is_gone: &AtomicBool, id: u32, pid: i32) {
        let caller = Caller { uid: 0, gid: 0, is_admin: true };
        let header = CtrlCmd { dev_id: id, queue_id: u16::MAX, data: u64::from(pid.unsigned_abs()), ..CtrlCmd::default() };
        let started = self.driver.control_cancellable(is_gone, &caller, ctrl::START_DEV.into(), header, &mut ControlPayload::new(&[], 0));
        self.update_record(id);
        if let Err(errno) = started {
            warn!(device = id, pid, "the device does not start: {errno}");
        }
    }

    fn serve_char_device(
        &self,
        socket: OwnedFd,
        id: u32,
        device: Result<Arc<UblkDevice<BrokerPlatform>>, Errno>,
        pid: i32,
    ) -> anyhow::Result<()> {
        let opened = device.and_then(|device| device.open().map(|()| device));
        let device = match opened {
            Ok(device) => device,
            Err(errno) => {
                let refusal = Welcome { version: VERSION, res: -errno.into_raw(), ..Welcome::default() };
                return Ok(send(&socket, &refusal.to_bytes())?);
            }
        };
        info!(device = id, pid, "char device opened");
        let served = serve(socket, &device);
        if device.is_live() {
            warn!(device = id, pid, "lost the server of a live device");
        } else {
            info!(device = id, pid, "char device closed");
        }
        device.close();
        self.publish_devices();
        Ok(served?)
    }

    /// Updates the device list in the runtime directory.
    fn publish_devices(&self) {
        let mut published = lock(&self.published);
        let ids = Some(self.driver.ids());
        // An error means that the directory is gone, and with it every reader of the list.
        if *published != ids && runtime_dir::publish_devices(&self.dir, ids.as_deref().unwrap_or_default()).is_ok() {
            *published = ids;
        }
    }

    fn stop_all(&self) {
        let caller = Caller { uid: 0, gid: 0, is_admin: true };
        for id in self.driver.ids() {
            let header = CtrlCmd { dev_id: id, queue_id: u16::MAX, ..CtrlCmd::default() };
            // An error means that it was stopped already.
            let _ = self.driver.control(&caller, ctrl::STOP_DEV.into(), header, &mut ControlPayload::new(&[], 0));
        }
    }
}

/// Logs a control command: at info if it changes what a device does, at debug otherwise.
fn log_control(call: &ControlCall<'_>, res: i32, pid: i32) {
    let device = call.header.dev_id.cast_signed();
    let number = (call.cmd_op & 0xff) as u8;
    match lifecycle_name(number) {
        Some(command) => info!(device, pid, command, res, "control command"),
        None => debug!(device, pid, command = number, res, "control command"),
    }
}

fn lifecycle_name(number: u8) -> Option<&'static str> {
    Some(match number {
        ctrl::ADD_DEV => "ADD_DEV",
        ctrl::START_DEV => "START_DEV",
        ctrl::STOP_DEV => "STOP_DEV",
        ctrl::DEL_DEV => "DEL_DEV",
        ctrl::DEL_DEV_ASYNC => "DEL_DEV_ASYNC",
        ctrl::START_USER_RECOVERY => "START_USER_RECOVERY",
        ctrl::END_USER_RECOVERY => "END_USER_RECOVERY",
        _ => return None,
    })
}

/// Serves an open char device until its server disconnects.
fn serve(socket: OwnedFd, device: &Arc<UblkDevice<BrokerPlatform>>) -> Result<(), rustix::io::Errno> {
    let (queues, depth) = device.queues();
    let welcome = Welcome { version: VERSION, res: 0, queues, depth, flags: device.info().flags };
    let (file, shm) = channel::create_rings(device)?;
    send_with(&socket, &welcome.to_bytes(), &[device.buffers().file(), file.as_fd()], SendFlags::empty())?;
    let channel = Arc::new(ServerChannel::new(socket, Arc::clone(device), shm));
    device.transport().set_channel(Some(Arc::clone(&channel)));
    channel.serve();
    device.transport().set_channel(None);
    Ok(())
}
