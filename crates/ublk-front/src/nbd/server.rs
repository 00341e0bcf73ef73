//! Listens and accepts.

use super::conn::Conn;
use super::exports::{Exports, export_name};
use super::handshake::{Agreement, Handshake, Next, greeting};
use super::inbox::{Inbox, Look};
use super::reader::Reader;
use super::wire::{Fields, OPTION_MAGIC, OPTION_MAX};
use crate::sync::lock;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::{SendFlags, SocketFlags, accept_with, send, sockopt};
use std::io::{Error, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use uringlet_sys::Errno;
use uringlet_ublk::frontend::{BlockDevice, FrontEnd};

/// Connections at a time, all exports together. One more is closed at once.
const CONNECTIONS_MAX: usize = 128;
/// A client that says nothing for this long before it has chosen its export is left.
const HAGGLE: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };
/// Options of one client: no sane one needs more.
const OPTIONS_MAX: u32 = 4096;
/// What a server that ends gives its connections to send their last replies.
const FAREWELL: Duration = Duration::from_secs(5);

/// Where clients reach a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A unix socket.
    Unix(PathBuf),
    /// A TCP port.
    Tcp(SocketAddr),
}

impl Address {
    /// The URI of a device, as NBD clients take it.
    #[must_use]
    pub fn uri(&self, id: u32) -> String {
        let name = export_name(id);
        match self {
            Self::Unix(path) => format!("nbd+unix:///{name}?socket={}", path.display()),
            Self::Tcp(address) => format!("nbd://{address}/{name}"),
        }
    }
}

/// An NBD server.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    listeners: Mutex<Vec<Listener>>,
}

#[derive(Debug)]
struct Listener {
    address: Address,
    thread: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    exports: Exports,
    /// Readable from the end on.
    end: OwnedFd,
    live: Mutex<usize>,
    fewer: Condvar,
}

impl Server {
    /// A server without devices that listens nowhere yet.
    ///
    /// # Errors
    /// No descriptor is to be had.
    pub fn new() -> std::io::Result<Self> {
        let end = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Shared { exports: Exports::default(), end, live: Mutex::new(0), fewer: Condvar::new() };
        Ok(Self { shared: Arc::new(shared), listeners: Mutex::default() })
    }

    /// Listens on a unix socket that only this user may connect to. A socket that a dead server left there is replaced.
    ///
    /// # Errors
    /// `AddrInUse` if a server is alive there; those of bind(2).
    pub fn listen_unix(&self, path: &Path) -> std::io::Result<Address> {
        if UnixStream::connect(path).is_ok() {
            return Err(Error::new(ErrorKind::AddrInUse, format!("another server listens on {}", path.display())));
        }
        // Made under another name: nobody meets it before its mode is right, and the rename replaces what is dead.
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}", std::process::id()));
        let listener = UnixListener::bind(&name)?;
        let placed = std::fs::set_permissions(&name, PermissionsExt::from_mode(0o600)).and_then(|()| std::fs::rename(&name, path));
        if let Err(error) = placed {
            let _ = std::fs::remove_file(&name);
            return Err(error);
        }
        self.listen(listener.into(), Address::Unix(path.to_owned()))
    }

    /// Listens on a TCP port of this machine; port 0 lets the kernel choose. Whoever is on this machine may connect.
    ///
    /// # Errors
    /// `InvalidInput` for an address that is not loopback: NBD has no password, and TLS is not spoken here. Those of bind(2).
    pub fn listen_tcp(&self, address: SocketAddr) -> std::io::Result<Address> {
        if !address.ip().is_loopback() {
            return Err(Error::new(ErrorKind::InvalidInput, format!("{address} is not a loopback address")));
        }
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        self.listen(listener.into(), Address::Tcp(address))
    }

    fn listen(&self, listener: OwnedFd, address: Address) -> std::io::Result<Address> {
        rustix::io::ioctl_fionbio(&listener, true)?;
        let shared = Arc::clone(&self.shared);
        let is_unix = matches!(address, Address::Unix(_));
        let accept = move || shared.accept(&listener, is_unix);
        let thread = std::thread::Builder::new().name("nbd-accept".into()).spawn(accept)?;
        lock(&self.listeners).push(Listener { address: address.clone(), thread });
        Ok(address)
    }

    /// Serves a client on a connected socket, on a thread of its own.
    ///
    /// # Errors
    /// Too many connections, or no thread is to be had: the socket is closed.
    pub fn serve(&self, socket: OwnedFd) -> std::io::Result<()> {
        Shared::serve(&self.shared, socket)
    }
}

impl FrontEnd for Server {
    fn start(&self, device: Arc<dyn BlockDevice>) -> Result<(), Errno> {
        self.shared.exports.add(device)
    }

    fn stop(&self, id: u32) {
        self.shared.exports.remove(id);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Never full: nobody else writes.
        let _ = rustix::io::write(&self.shared.end, &1_u64.to_ne_bytes());
        for listener in std::mem::take(&mut *lock(&self.listeners)) {
            if let Address::Unix(path) = &listener.address {
                let _ = std::fs::remove_file(path);
            }
            let _ = listener.thread.join();
        }
        self.shared.exports.clear();
        let until = Instant::now() + FAREWELL;
        let mut live = lock(&self.shared.live);
        while *live > 0 && Instant::now() < until {
            live = self.shared.fewer.wait_timeout(live, until - Instant::now()).map_or_else(|error| error.into_inner().0, |pair| pair.0);
        }
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, listener: &OwnedFd, is_unix: bool) {
        // What cannot be accepted for want of descriptors stays readable: look again later.
        let later = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        let mut pause = None;
        loop {
            let flags = if pause.is_some() { PollFlags::empty() } else { PollFlags::IN };
            let mut fds = [PollFd::new(listener, flags), PollFd::new(&self.end, PollFlags::IN)];
            let polled = poll(&mut fds, pause.as_ref());
            if fds[1].revents().contains(PollFlags::IN) || matches!(polled, Err(error) if error != rustix::io::Errno::INTR) {
                return;
            }
            pause = None;
            match accept_with(listener, SocketFlags::CLOEXEC) {
                Ok(socket) if is_unix && !is_friend(&socket) => {}
                // Refused: it is closed, and the client sees that.
                Ok(socket) => drop(Self::serve(self, socket)),
                Err(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE | rustix::io::Errno::NOMEM) => pause = Some(later),
                Err(_) => {}
            }
        }
    }

    fn serve(self: &Arc<Self>, socket: OwnedFd) -> std::io::Result<()> {
        let mut live = lock(&self.live);
        if *live >= CONNECTIONS_MAX {
            return Err(Error::new(ErrorKind::QuotaExceeded, format!("{CONNECTIONS_MAX} connections are open already")));
        }
        rustix::io::ioctl_fionbio(&socket, true)?;
        // Not a TCP socket: it has no such delay.
        let _ = sockopt::set_tcp_nodelay(&socket, true);
        let shared = Arc::clone(self);
        std::thread::Builder::new().name("nbd-conn".into()).spawn(move || {
            shared.converse(socket);
            *lock(&shared.live) -= 1;
            shared.fewer.notify_all();
        })?;
        *live += 1;
        Ok(())
    }

    fn converse(&self, socket: OwnedFd) {
        let mut talk = Talk { socket, end: &self.end, inbox: Inbox::default() };
        let Some(agreement) = talk.haggle(&self.exports) else { return };
        let export = Arc::clone(&agreement.export);
        let Talk { socket, inbox, .. } = talk;
        let Ok(conn) = Conn::new(socket, agreement) else { return };
        if export.join(&conn) {
            Reader::new(conn, inbox).run();
        }
    }
}

/// Whether the peer of a unix socket is this user, or root.
fn is_friend(socket: &OwnedFd) -> bool {
    sockopt::socket_peercred(socket).is_ok_and(|peer| peer.uid.is_root() || peer.uid == rustix::process::geteuid())
}

/// A connection before there is an export.
struct Talk<'a> {
    socket: OwnedFd,
    end: &'a OwnedFd,
    inbox: Inbox,
}

impl Talk<'_> {
    fn haggle(&mut self, exports: &Exports) -> Option<Agreement> {
        self.send(&greeting())?;
        let flags = Fields(self.receive(4)?).u32()?;
        let mut handshake = Handshake::new(flags)?;
        for _ in 0..OPTIONS_MAX {
            let mut head = Fields(self.receive(16)?);
            let (magic, number, len) = (head.u64()?, head.u32()?, head.u32()?);
            if magic != OPTION_MAGIC || len > OPTION_MAX {
                return None;
            }
            let mut reply = Vec::new();
            let next = handshake.option(exports, number, self.receive(len as usize)?, &mut reply);
            self.send(&reply)?;
            match next {
                Next::More => {}
                Next::Close => return None,
                Next::Go(agreement) => return Some(agreement),
            }
        }
        None
    }

    fn receive(&mut self, len: usize) -> Option<&[u8]> {
        while self.inbox.len() < len {
            match self.inbox.look(&self.socket, len) {
                Look::Some => {}
                Look::Nothing => self.wait(PollFlags::IN)?,
                Look::End => return None,
            }
        }
        Some(self.inbox.take(len))
    }

    fn send(&self, mut bytes: &[u8]) -> Option<()> {
        while !bytes.is_empty() {
            match send(&self.socket, bytes, SendFlags::NOSIGNAL) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => self.wait(PollFlags::OUT)?,
                Err(_) => return None,
            }
        }
        Some(())
    }

    /// Waits for the client, not for ever, and not beyond the server's end.
    fn wait(&self, flags: PollFlags) -> Option<()> {
        let mut fds = [PollFd::new(&self.socket, flags), PollFd::from_borrowed_fd(self.end.as_fd(), PollFlags::IN)];
        match poll(&mut fds, Some(&HAGGLE)) {
            Ok(0) => None,
            Ok(_) if !fds[1].revents().is_empty() => None,
            Ok(_) | Err(rustix::io::Errno::INTR) => Some(()),
            Err(_) => None,
        }
    }
}
