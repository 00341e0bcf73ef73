//! The broker itself.

use crate::channel::{self, BrokerPlatform, ServerChannel};
use crate::control_payload::ControlPayload;
use crate::hangup::HangupMonitor;
use crate::packets::{self, PacketReceiver, send, send_with};
use crate::runtime_dir;
use crate::sync::lock;
use anyhow::{Context, bail, ensure};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FlockOperation, flock};
use rustix::net::{RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, UCred, accept_with, bind, listen, sockopt};
use std::fs::File;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use uringlet_abi::ublk::{CtrlCmd, ctrl};
use uringlet_sys::Errno;
use uringlet_ublk::frontend::{BlockDevice, FrontEnd};
use uringlet_ublk::platform::Caller;
use uringlet_ublk::wire::{ControlCall, ControlReply, Hello, Purpose, VERSION, Welcome};
use uringlet_ublk::{Driver, UblkDevice};

/// Connections at a time: one more is closed at once.
pub const CONNECTIONS_MAX: usize = 512;
/// How often an idle broker looks whether it still is.
const IDLE_CHECK_INTERVAL: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
const LISTEN_BACKLOG: i32 = 64;

/// A broker that listens.
#[derive(Debug)]
pub struct Broker {
    shared: Arc<BrokerShared>,
    listener: OwnedFd,
    path: PathBuf,
    /// The socket's inode: another broker may have put its own under this name.
    inode: u64,
    /// Locked as long as we connections: the kernel lets go of it, however we stop_eventfd.
    _lock: File,
}

#[derive(Debug)]
struct BrokerShared {
    driver: Driver<BrokerPlatform>,
    connections: Mutex<usize>,
    dir: PathBuf,
    /// The devices that programs are shown; one thread at a time brings that up to date.
    published: Mutex<Option<Vec<u32>>>,
    hangups: HangupMonitor,
    /// Readable from the stop_eventfd on.
    stop_eventfd: OwnedFd,
}

/// A broker as other threads see it: they can stop_eventfd it.
#[derive(Clone, Debug)]
pub struct BrokerHandle(Arc<BrokerShared>);

impl BrokerHandle {
    /// Lets [`Broker::run`] return.
    pub fn stop(&self) {
        // Full means that it is told already.
        let _ = rustix::io::write(&self.0.stop_eventfd, &1_u64.to_ne_bytes());
    }

    /// Connections that are open now.
    #[must_use]
    pub fn connections(&self) -> usize {
        *self.0.connections()
    }
}

impl Broker {
    /// Listens in `dir`, which is made if need be, and offers devices through `front_ends`.
    ///
    /// # Errors
    /// Another broker is alive there; the folder is not ours alone; those of bind(2).
    pub fn new(dir: &Path, front_ends: Vec<Arc<dyn FrontEnd>>) -> anyhow::Result<Self> {
        runtime_dir::prepare(dir)?;
        let lock = File::create(dir.join("ublkd.lock")).context("making the lock")?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            bail!("another broker is alive in {}", dir.display());
        }
        let path = runtime_dir::socket(dir);
        // Whoever left it is dead: we have the lock.
        let _ = std::fs::remove_file(&path);
        let listener = packets::socket()?;
        bind(&listener, &SocketAddrUnix::new(&path)?).with_context(|| format!("binding {}", path.display()))?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600))?;
        listen(&listener, LISTEN_BACKLOG)?;
        rustix::io::ioctl_fionbio(&listener, true)?;
        let stop_eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let driver = Driver::new(BrokerPlatform, front_ends);
        let shared = BrokerShared {
            driver,
            connections: Mutex::new(0),
            dir: dir.to_owned(),
            published: Mutex::default(),
            hangups: HangupMonitor::new()?,
            stop_eventfd,
        };
        let inode = inode(&path).context("the socket is gone already")?;
        shared.publish_devices();
        Ok(Self { shared: Arc::new(shared), listener, path, inode, _lock: lock })
    }

    /// What ends it.
    #[must_use]
    pub fn handle(&self) -> BrokerHandle {
        BrokerHandle(Arc::clone(&self.shared))
    }

    /// Serves until it is stopped, or was without devices and connections for `idle`, or, with such a limit, nobody can reach it any more: its
    /// socket was removed and the last connection has ended. Devices that are there then stop_eventfd with it.
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
            if let Ok(socket) = accept_with(&self.listener, SocketFlags::CLOEXEC) {
                // CommandRefused: it is closed, and the client sees that.
                let _ = BrokerShared::accept(&self.shared, socket);
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
        Ok(())
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if inode(&self.path) == Some(self.inode) {
            // Gone already is as good.
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
        ensure!(peer.uid.is_root() || peer.uid == rustix::process::geteuid(), "user {} is a stranger", peer.uid.as_raw());
        let mut connections = self.connections();
        ensure!(*connections < CONNECTIONS_MAX, "{CONNECTIONS_MAX} connections are open already");
        let shared = Arc::clone(self);
        std::thread::Builder::new().name("ublkd-conn".into()).spawn(move || {
            // However it ends, the peer sees the stop_eventfd.
            let _ = shared.run_connection(socket, peer);
            *shared.connections() -= 1;
        })?;
        *connections += 1;
        Ok(())
    }

    fn run_connection(&self, socket: OwnedFd, peer: UCred) -> anyhow::Result<()> {
        let mut receiver = PacketReceiver::new();
        let hello = Hello::parse(receiver.receive(&socket, RecvFlags::empty())?.0).context("not the protocol")?;
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
            Purpose::Open(id) => self.serve_char_device(socket, id),
        }
    }

    fn serve_control(&self, socket: &OwnedFd, receiver: &mut PacketReceiver, peer: UCred) -> anyhow::Result<()> {
        let caller = Caller { uid: peer.uid.as_raw(), gid: peer.gid.as_raw(), is_admin: true };
        loop {
            let (bytes, _) = receiver.receive(socket, RecvFlags::empty())?;
            if bytes.is_empty() {
                return Ok(());
            }
            let call = ControlCall::parse(bytes).context("malformed call")?;
            let mut packet = ControlPayload::new(call.payload, call.header.len);
            let monitored = self.hangups.add(socket)?;
            let result = self.driver.control_cancellable(&monitored.hung_up, &caller, call.cmd_op, call.header, &mut packet);
            drop(monitored);
            let res = result.err().map_or(0, |errno| -errno.into_raw());
            self.publish_devices();
            // A payload has a 16-bit length.
            send(socket, &ControlReply { res, at: packet.at as u16, bytes: &packet.written }.to_bytes())?;
        }
    }

    fn serve_char_device(&self, socket: OwnedFd, id: u32) -> anyhow::Result<()> {
        let device = self.driver.device(id);
        let opened = device.ok_or(Errno::ENOENT).and_then(|device| device.open().map(|()| device));
        let device = match opened {
            Ok(device) => device,
            Err(errno) => {
                let refusal = Welcome { version: VERSION, res: -errno.into_raw(), ..Welcome::default() };
                return Ok(send(&socket, &refusal.to_bytes())?);
            }
        };
        let served = serve(socket, &device);
        device.close();
        self.publish_devices();
        Ok(served?)
    }

    /// Shows programs which devices there are.
    fn publish_devices(&self) {
        let mut published = lock(&self.published);
        let ids = Some(self.driver.ids());
        // A folder that is gone has nobody who looks.
        if *published != ids && runtime_dir::publish_devices(&self.dir, ids.as_deref().unwrap_or_default()).is_ok() {
            *published = ids;
        }
    }

    fn stop_all(&self) {
        let caller = Caller { uid: 0, gid: 0, is_admin: true };
        for id in self.driver.ids() {
            let header = CtrlCmd { dev_id: id, queue_id: u16::MAX, ..CtrlCmd::default() };
            // Somebody else may have stopped it.
            let _ = self.driver.control(&caller, ctrl::STOP_DEV.into(), header, &mut ControlPayload::new(&[], 0));
        }
    }
}

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
