//! The NBD server: listens, accepts, negotiates.

use super::conn::Conn;
use super::exports::{ExportUser, Exports, export_name};
use super::handshake::{Handshake, Negotiated, OptionOutcome, greeting};
use super::inbox::{Inbox, ReadOutcome};
use super::reader::CommandReader;
use super::wire::{OPTION_MAGIC, OPTION_MAX, OptionHeader, WireReader};
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
use zerocopy::FromBytes;

/// Most connections of all exports together; further ones are closed at once.
const CONNECTIONS_MAX: usize = 128;
/// Longest silence of a client before it has chosen its export.
const NEGOTIATE_TIMEOUT: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };
/// Most options of one client.
const OPTIONS_MAX: u32 = 4096;
/// How long a server that is dropped waits for its connections to send their last replies.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// A server's listening address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdAddress {
    /// A unix socket.
    Unix(PathBuf),
    /// A TCP port.
    Tcp(SocketAddr),
}

impl NbdAddress {
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
pub struct NbdServer {
    shared: Arc<NbdShared>,
    listeners: Mutex<Vec<NbdListener>>,
}

#[derive(Debug)]
struct NbdListener {
    address: NbdAddress,
    thread: JoinHandle<()>,
}

#[derive(Debug)]
struct NbdShared {
    exports: Exports,
    /// Readable from the request to stop on.
    stop_eventfd: OwnedFd,
    connections: Mutex<usize>,
    connection_closed: Condvar,
}

impl NbdServer {
    /// A server without devices that does not listen yet.
    ///
    /// # Errors
    /// No descriptor is available.
    pub fn new() -> std::io::Result<Self> {
        let stop_eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = NbdShared { exports: Exports::default(), stop_eventfd, connections: Mutex::new(0), connection_closed: Condvar::new() };
        Ok(Self { shared: Arc::new(shared), listeners: Mutex::default() })
    }

    /// Listens on a unix socket that only this user may connect to. Replaces the socket of a server
    /// that has ended.
    ///
    /// # Errors
    /// `AddrInUse` if a server listens there; those of bind(2).
    pub fn listen_unix(&self, path: &Path) -> std::io::Result<NbdAddress> {
        if UnixStream::connect(path).is_ok() {
            return Err(Error::new(ErrorKind::AddrInUse, format!("another server listens on {}", path.display())));
        }
        // Bound under another name, so that clients see it only with its final mode; the rename
        // replaces a stale socket.
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}", std::process::id()));
        let listener = UnixListener::bind(&name)?;
        let placed = std::fs::set_permissions(&name, PermissionsExt::from_mode(0o600)).and_then(|()| std::fs::rename(&name, path));
        if let Err(error) = placed {
            let _ = std::fs::remove_file(&name);
            return Err(error);
        }
        self.listen(listener.into(), NbdAddress::Unix(path.to_owned()))
    }

    /// Listens on a loopback TCP port; port 0 lets the kernel choose. All local users may connect.
    ///
    /// # Errors
    /// `InvalidInput` for an address that is not loopback, as there is neither TLS nor a password.
    /// Those of bind(2).
    pub fn listen_tcp(&self, address: SocketAddr) -> std::io::Result<NbdAddress> {
        if !address.ip().is_loopback() {
            return Err(Error::new(ErrorKind::InvalidInput, format!("{address} is not a loopback address")));
        }
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        self.listen(listener.into(), NbdAddress::Tcp(address))
    }

    fn listen(&self, listener: OwnedFd, address: NbdAddress) -> std::io::Result<NbdAddress> {
        rustix::io::ioctl_fionbio(&listener, true)?;
        let shared = Arc::clone(&self.shared);
        let is_unix = matches!(address, NbdAddress::Unix(_));
        let accept = move || shared.accept(&listener, is_unix);
        let thread = std::thread::Builder::new().name("nbd-accept".into()).spawn(accept)?;
        lock(&self.listeners).push(NbdListener { address: address.clone(), thread });
        Ok(address)
    }

    /// Serves a client on a connected socket, on a thread of its own.
    ///
    /// # Errors
    /// Too many connections, or no thread is available; the socket is closed.
    pub fn serve(&self, socket: OwnedFd) -> std::io::Result<()> {
        NbdShared::serve(&self.shared, socket)
    }
}

impl FrontEnd for NbdServer {
    fn start(&self, device: Arc<dyn BlockDevice>) -> Result<(), Errno> {
        self.shared.exports.add(device)
    }

    fn stop(&self, id: u32) {
        self.shared.exports.remove(id);
    }
}

impl Drop for NbdServer {
    fn drop(&mut self) {
        // Cannot be full: this is the only writer.
        let _ = rustix::io::write(&self.shared.stop_eventfd, &1_u64.to_ne_bytes());
        for listener in std::mem::take(&mut *lock(&self.listeners)) {
            if let NbdAddress::Unix(path) = &listener.address {
                let _ = std::fs::remove_file(path);
            }
            let _ = listener.thread.join();
        }
        self.shared.exports.clear();
        let until = Instant::now() + CLOSE_TIMEOUT;
        let mut connections = lock(&self.shared.connections);
        while *connections > 0 && Instant::now() < until {
            connections = self
                .shared
                .connection_closed
                .wait_timeout(connections, until - Instant::now())
                .map_or_else(|error| error.into_inner().0, |pair| pair.0);
        }
    }
}

impl NbdShared {
    fn accept(self: &Arc<Self>, listener: &OwnedFd, is_unix: bool) {
        // Without descriptors the connection cannot be accepted and stays pending: retry later.
        let retry_delay = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        let mut delay = None;
        loop {
            let flags = if delay.is_some() { PollFlags::empty() } else { PollFlags::IN };
            let mut fds = [PollFd::new(listener, flags), PollFd::new(&self.stop_eventfd, PollFlags::IN)];
            let polled = poll(&mut fds, delay.as_ref());
            if fds[1].revents().contains(PollFlags::IN) || matches!(polled, Err(error) if error != rustix::io::Errno::INTR) {
                return;
            }
            delay = None;
            match accept_with(listener, SocketFlags::CLOEXEC) {
                Ok(socket) if is_unix && !is_same_user(&socket) => {}
                // On an error the socket is closed, which tells the client.
                Ok(socket) => drop(Self::serve(self, socket)),
                Err(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE | rustix::io::Errno::NOMEM) => delay = Some(retry_delay),
                Err(_) => {}
            }
        }
    }

    fn serve(self: &Arc<Self>, socket: OwnedFd) -> std::io::Result<()> {
        let mut connections = lock(&self.connections);
        if *connections >= CONNECTIONS_MAX {
            return Err(Error::new(ErrorKind::QuotaExceeded, format!("{CONNECTIONS_MAX} connections are open already")));
        }
        rustix::io::ioctl_fionbio(&socket, true)?;
        // Fails for a unix socket, which has no such delay.
        let _ = sockopt::set_tcp_nodelay(&socket, true);
        let shared = Arc::clone(self);
        std::thread::Builder::new().name("nbd-conn".into()).spawn(move || {
            shared.run_connection(socket);
            *lock(&shared.connections) -= 1;
            shared.connection_closed.notify_all();
        })?;
        *connections += 1;
        Ok(())
    }

    fn run_connection(&self, socket: OwnedFd) {
        let mut negotiation = Negotiation { socket, stop_eventfd: &self.stop_eventfd, inbox: Inbox::default() };
        let Some(negotiated) = negotiation.negotiate(&self.exports) else { return };
        let export = Arc::clone(&negotiated.export);
        let Negotiation { socket, inbox, .. } = negotiation;
        let Ok(conn) = Conn::new(socket, negotiated) else { return };
        if export.register(&(Arc::clone(&conn) as Arc<dyn ExportUser>)) {
            CommandReader::new(conn, inbox).run();
        }
    }
}

/// Whether the peer of a unix socket is this user or root.
fn is_same_user(socket: &OwnedFd) -> bool {
    sockopt::socket_peercred(socket).is_ok_and(|peer| peer.uid.is_root() || peer.uid == rustix::process::geteuid())
}

/// A connection before its export is chosen.
struct Negotiation<'a> {
    socket: OwnedFd,
    stop_eventfd: &'a OwnedFd,
    inbox: Inbox,
}

impl Negotiation<'_> {
    fn negotiate(&mut self, exports: &Exports) -> Option<Negotiated> {
        self.send(&greeting())?;
        let flags = WireReader(self.receive(4)?).u32()?;
        let mut handshake = Handshake::new(flags)?;
        for _ in 0..OPTIONS_MAX {
            let header = OptionHeader::read_from_bytes(self.receive(size_of::<OptionHeader>())?).ok()?;
            if header.magic != OPTION_MAGIC || header.len > OPTION_MAX {
                return None;
            }
            let (number, len) = (header.option.get(), header.len.get());
            let mut reply = Vec::new();
            let next = handshake.option(exports, number, self.receive(len as usize)?, &mut reply);
            self.send(&reply)?;
            match next {
                OptionOutcome::Continue => {}
                OptionOutcome::Close => return None,
                OptionOutcome::Transmission(negotiated) => return Some(negotiated),
            }
        }
        None
    }

    fn receive(&mut self, len: usize) -> Option<&[u8]> {
        while self.inbox.len() < len {
            match self.inbox.read_from(&self.socket, len) {
                ReadOutcome::Data => {}
                ReadOutcome::WouldBlock => self.wait(PollFlags::IN)?,
                ReadOutcome::Eof => return None,
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

    /// Waits for the client, at most for the time-out and until the server stops.
    fn wait(&self, flags: PollFlags) -> Option<()> {
        let mut fds = [PollFd::new(&self.socket, flags), PollFd::from_borrowed_fd(self.stop_eventfd.as_fd(), PollFlags::IN)];
        match poll(&mut fds, Some(&NEGOTIATE_TIMEOUT)) {
            Ok(0) => None,
            Ok(_) if !fds[1].revents().is_empty() => None,
            Ok(_) | Err(rustix::io::Errno::INTR) => Some(()),
            Err(_) => None,
        }
    }
}
