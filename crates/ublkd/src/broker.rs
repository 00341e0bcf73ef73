//! The broker itself.

use crate::channel::{self, Channel};
use crate::packets::{self, Inbox, send, send_with};
use crate::place;
use crate::surroundings::{Packet, Surroundings, lock};
use crate::watch::Watch;
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
const LOOK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
const BACKLOG: i32 = 64;

/// A broker that listens.
#[derive(Debug)]
pub struct Broker {
    shared: Arc<Shared>,
    listener: OwnedFd,
    path: PathBuf,
    /// The socket's inode: another broker may have put its own under this name.
    inode: u64,
    /// Locked as long as we live: the kernel lets go of it, however we end.
    _lock: File,
}

#[derive(Debug)]
struct Shared {
    driver: Driver<Surroundings>,
    live: Mutex<usize>,
    dir: PathBuf,
    /// The devices that programs are shown; one thread at a time brings that up to date.
    listed: Mutex<Option<Vec<u32>>>,
    watch: Watch,
    /// Readable from the end on.
    end: OwnedFd,
}

/// A broker as other threads see it: they can end it.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<Shared>);

impl Stopper {
    /// Lets [`Broker::run`] return.
    pub fn stop(&self) {
        // Full means that it is told already.
        let _ = rustix::io::write(&self.0.end, &1_u64.to_ne_bytes());
    }

    /// Connections that are open now.
    #[must_use]
    pub fn connections(&self) -> usize {
        *self.0.live()
    }
}

impl Broker {
    /// Listens in `dir`, which is made if need be, and offers devices through `front_ends`.
    ///
    /// # Errors
    /// Another broker is alive there; the folder is not ours alone; those of bind(2).
    pub fn new(dir: &Path, front_ends: Vec<Arc<dyn FrontEnd>>) -> anyhow::Result<Self> {
        place::prepare(dir)?;
        let lock = File::create(dir.join("ublkd.lock")).context("making the lock")?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            bail!("another broker is alive in {}", dir.display());
        }
        let path = place::socket(dir);
        // Whoever left it is dead: we have the lock.
        let _ = std::fs::remove_file(&path);
        let listener = packets::socket()?;
        bind(&listener, &SocketAddrUnix::new(&path)?).with_context(|| format!("binding {}", path.display()))?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600))?;
        listen(&listener, BACKLOG)?;
        rustix::io::ioctl_fionbio(&listener, true)?;
        let end = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let driver = Driver::new(Surroundings, front_ends);
        let shared = Shared { driver, live: Mutex::new(0), dir: dir.to_owned(), listed: Mutex::default(), watch: Watch::new()?, end };
        let inode = inode(&path).context("the socket is gone already")?;
        shared.list();
        Ok(Self { shared: Arc::new(shared), listener, path, inode, _lock: lock })
    }

    /// What ends it.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.shared))
    }

    /// Serves until it is stopped, or was without devices and connections for `idle`, or, with such a limit, nobody can reach it any more: its
    /// socket was removed and the last connection has ended. Devices that are there then end with it.
    ///
    /// # Errors
    /// Those of poll(2).
    pub fn run(&self, idle: Option<Duration>) -> anyhow::Result<()> {
        let mut busy = Instant::now();
        loop {
            let watch = self.shared.watch.fd();
            let mut fds = [
                PollFd::new(&self.listener, PollFlags::IN),
                PollFd::new(&self.shared.end, PollFlags::IN),
                PollFd::from_borrowed_fd(watch, PollFlags::IN),
            ];
            match poll(&mut fds, idle.map(|_| &LOOK)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error).context("waiting for connections"),
            }
            if fds[1].revents().contains(PollFlags::IN) {
                break;
            }
            if fds[2].revents().contains(PollFlags::IN) && self.shared.watch.look() {
                self.shared.driver.recheck_waiters();
            }
            if let Ok(socket) = accept_with(&self.listener, SocketFlags::CLOEXEC) {
                // Refused: it is closed, and the client sees that.
                let _ = Shared::admit(&self.shared, socket);
            }
            let is_alone = *self.shared.live() == 0;
            if !is_alone || !self.shared.driver.ids().is_empty() {
                busy = Instant::now();
            }
            if idle.is_some_and(|idle| busy.elapsed() >= idle || (is_alone && inode(&self.path) != Some(self.inode))) {
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

impl Shared {
    fn live(&self) -> MutexGuard<'_, usize> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admit(self: &Arc<Self>, socket: OwnedFd) -> anyhow::Result<()> {
        let peer = sockopt::socket_peercred(&socket)?;
        ensure!(peer.uid.is_root() || peer.uid == rustix::process::geteuid(), "user {} is a stranger", peer.uid.as_raw());
        let mut live = self.live();
        ensure!(*live < CONNECTIONS_MAX, "{CONNECTIONS_MAX} connections are open already");
        let shared = Arc::clone(self);
        std::thread::Builder::new().name("ublkd-conn".into()).spawn(move || {
            // However it ends, the peer sees the end.
            let _ = shared.converse(socket, peer);
            *shared.live() -= 1;
        })?;
        *live += 1;
        Ok(())
    }

    fn converse(&self, socket: OwnedFd, peer: UCred) -> anyhow::Result<()> {
        let mut inbox = Inbox::new();
        let hello = Hello::parse(inbox.receive(&socket, RecvFlags::empty())?.0).context("not the protocol")?;
        let welcome = |res| Welcome { version: VERSION, res, ..Welcome::default() };
        if hello.version != VERSION {
            send(&socket, &welcome(-Errno::EPROTONOSUPPORT.into_raw()).to_bytes())?;
            return Ok(());
        }
        match hello.purpose {
            Purpose::Control => {
                send(&socket, &welcome(0).to_bytes())?;
                self.control(&socket, &mut inbox, peer)
            }
            Purpose::List => {
                send(&socket, &welcome(0).to_bytes())?;
                let ids: Vec<u8> = self.driver.ids().iter().flat_map(|id| id.to_le_bytes()).collect();
                Ok(send(&socket, &ids)?)
            }
            Purpose::Open(id) => self.open(socket, id),
        }
    }

    fn control(&self, socket: &OwnedFd, inbox: &mut Inbox, peer: UCred) -> anyhow::Result<()> {
        let caller = Caller { uid: peer.uid.as_raw(), gid: peer.gid.as_raw(), is_admin: true };
        loop {
            let (bytes, _) = inbox.receive(socket, RecvFlags::empty())?;
            if bytes.is_empty() {
                return Ok(());
            }
            let call = ControlCall::parse(bytes).context("malformed call")?;
            let mut packet = Packet::new(call.payload, call.header.len);
            let watched = self.watch.add(socket)?;
            let result = self.driver.control_cancellable(&watched.gone, &caller, call.cmd_op, call.header, &mut packet);
            drop(watched);
            let res = result.err().map_or(0, |errno| -errno.into_raw());
            self.list();
            // A payload has a 16-bit length.
            send(socket, &ControlReply { res, at: packet.at as u16, bytes: &packet.written }.to_bytes())?;
        }
    }

    fn open(&self, socket: OwnedFd, id: u32) -> anyhow::Result<()> {
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
        self.list();
        Ok(served?)
    }

    /// Shows programs which devices there are.
    fn list(&self) {
        let mut listed = lock(&self.listed);
        let ids = Some(self.driver.ids());
        // A folder that is gone has nobody who looks.
        if *listed != ids && place::list(&self.dir, ids.as_deref().unwrap_or_default()).is_ok() {
            *listed = ids;
        }
    }

    fn stop_all(&self) {
        let caller = Caller { uid: 0, gid: 0, is_admin: true };
        for id in self.driver.ids() {
            let header = CtrlCmd { dev_id: id, queue_id: u16::MAX, ..CtrlCmd::default() };
            // Somebody else may have stopped it.
            let _ = self.driver.control(&caller, ctrl::STOP_DEV.into(), header, &mut Packet::new(&[], 0));
        }
    }
}

fn serve(socket: OwnedFd, device: &Arc<UblkDevice<Surroundings>>) -> Result<(), rustix::io::Errno> {
    let (queues, depth) = device.queues();
    let welcome = Welcome { version: VERSION, res: 0, queues, depth, flags: device.info().flags };
    let (file, exchange) = channel::rings(device)?;
    send_with(&socket, &welcome.to_bytes(), &[device.buffers().file(), file.as_fd()], SendFlags::empty())?;
    let channel = Arc::new(Channel::new(socket, Arc::clone(device), exchange));
    device.transport().set_channel(Some(Arc::clone(&channel)));
    channel.serve();
    device.transport().set_channel(None);
    Ok(())
}
