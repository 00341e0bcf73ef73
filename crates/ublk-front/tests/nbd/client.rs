//! An NBD client for tests, which can misbehave.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uringlet_ublk::frontend::{BlockDevice, FrontEnd};
use uringlet_ublk_front::nbd::NbdServer;
use uringlet_ublk_server::ram_device::{RamDevice, RamDeviceSpec};

/// A time-out beyond any healthy run.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);

pub(crate) const READ: u16 = 0;
pub(crate) const WRITE: u16 = 1;
pub(crate) const DISCONNECT: u16 = 2;
pub(crate) const FLUSH: u16 = 3;
pub(crate) const TRIM: u16 = 4;
pub(crate) const CACHE: u16 = 5;
pub(crate) const WRITE_ZEROES: u16 = 6;
pub(crate) const BLOCK_STATUS: u16 = 7;

/// A server with one device.
pub(crate) fn served(spec: RamDeviceSpec) -> (NbdServer, Arc<RamDevice>) {
    let server = NbdServer::new().unwrap();
    let device = Arc::new(RamDevice::new(0, spec));
    server.start(Arc::clone(&device) as Arc<dyn BlockDevice>).unwrap();
    (server, device)
}

/// A connected socket before negotiation.
pub(crate) fn connect(server: &NbdServer) -> UnixStream {
    let (client, peer) = UnixStream::pair().unwrap();
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    client.set_write_timeout(Some(TIMEOUT)).unwrap();
    server.serve(peer.into()).unwrap();
    client
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) cookie: u64,
    pub(crate) error: u32,
    /// The chunk's type; `None` for a simple reply.
    pub(crate) kind: Option<u16>,
    pub(crate) is_done: bool,
    pub(crate) data: Vec<u8>,
}

pub(crate) struct Client {
    pub(crate) socket: UnixStream,
    pub(crate) size: u64,
    pub(crate) flags: u16,
}

impl Client {
    /// Negotiates the default export.
    pub(crate) fn new(server: &NbdServer, is_structured: bool) -> Self {
        let mut socket = connect(server);
        let mut hello = [0; 18];
        socket.read_exact(&mut hello).unwrap();
        assert_eq!(&hello, b"NBDMAGICIHAVEOPT\0\x03");
        socket.write_all(&3_u32.to_be_bytes()).unwrap();
        let mut client = Self { socket, size: 0, flags: 0 };
        if is_structured {
            assert_eq!(client.option(8, &[]), [(1, vec![])]);
            let query = [&0_u32.to_be_bytes()[..], &1_u32.to_be_bytes(), &15_u32.to_be_bytes(), b"base:allocation"].concat();
            assert_eq!(client.option(10, &query).len(), 2);
        }
        let infos = client.option(7, &[0; 6]);
        let export = &infos[0];
        assert_eq!((export.0, &export.1[..2]), (3, &[0, 0][..]));
        client.size = u64::from_be_bytes(export.1[2..10].try_into().unwrap());
        client.flags = u16::from_be_bytes(export.1[10..12].try_into().unwrap());
        client
    }

    /// Sends an option; returns its replies by type and data.
    pub(crate) fn option(&mut self, number: u32, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let head = [&b"IHAVEOPT"[..], &number.to_be_bytes(), &(data.len() as u32).to_be_bytes(), data].concat();
        self.socket.write_all(&head).unwrap();
        let mut replies = Vec::new();
        loop {
            let head = self.take(20);
            assert_eq!(head[..8], 0x0003_e889_0455_65a9_u64.to_be_bytes());
            let kind = u32::from_be_bytes(head[12..16].try_into().unwrap());
            let len = u32::from_be_bytes(head[16..20].try_into().unwrap());
            let data = self.take(len as usize);
            replies.push((kind, data));
            if kind == 1 || kind & 0x8000_0000 != 0 {
                return replies;
            }
        }
    }

    pub(crate) fn send(&mut self, command: u16, flags: u16, cookie: u64, offset: u64, len: u32) {
        self.socket.write_all(&request(command, flags, cookie, offset, len)).unwrap();
    }

    /// The next reply; `len` bytes follow a simple reply without an error.
    pub(crate) fn reply(&mut self, len: usize) -> Reply {
        let head = self.take(16);
        match u32::from_be_bytes(head[..4].try_into().unwrap()) {
            0x6744_6698 => {
                let error = u32::from_be_bytes(head[4..8].try_into().unwrap());
                let cookie = u64::from_be_bytes(head[8..16].try_into().unwrap());
                let data = self.take(if error == 0 { len } else { 0 });
                Reply { cookie, error, kind: None, is_done: true, data }
            }
            0x668e_33ef => {
                let len = u32::from_be_bytes(self.take(4).try_into().unwrap());
                let data = self.take(len as usize);
                let kind = u16::from_be_bytes(head[6..8].try_into().unwrap());
                let error = if kind & 0x8000 == 0 { 0 } else { u32::from_be_bytes(data[..4].try_into().unwrap()) };
                let cookie = u64::from_be_bytes(head[8..16].try_into().unwrap());
                Reply { cookie, error, kind: Some(kind), is_done: head[5] & 1 == 1, data }
            }
            other => panic!("a reply begins with {other:#x}"),
        }
    }

    /// Runs a command without data; returns its error.
    pub(crate) fn ask(&mut self, command: u16, flags: u16, offset: u64, len: u32) -> u32 {
        self.send(command, flags, 77, offset, len);
        let reply = self.reply(0);
        assert_eq!((reply.cookie, reply.is_done), (77, true));
        reply.error
    }

    pub(crate) fn write(&mut self, flags: u16, offset: u64, data: &[u8]) -> u32 {
        self.send(WRITE, flags, 78, offset, data.len() as u32);
        self.socket.write_all(data).unwrap();
        self.reply(0).error
    }

    /// Reads, with any kind of reply.
    pub(crate) fn read(&mut self, flags: u16, offset: u64, len: usize) -> Result<Vec<u8>, u32> {
        self.send(READ, flags, 79, offset, len as u32);
        let mut data = vec![0xee; len];
        loop {
            let reply = self.reply(len);
            assert_eq!(reply.cookie, 79);
            match reply.kind {
                _ if reply.error != 0 => return Err(reply.error),
                None => data.copy_from_slice(&reply.data),
                Some(_) => {
                    let at = u64::from_be_bytes(reply.data[..8].try_into().unwrap()) - offset;
                    data[at as usize..at as usize + reply.data.len() - 8].copy_from_slice(&reply.data[8..]);
                }
            }
            if reply.is_done {
                return Ok(data);
            }
        }
    }

    pub(crate) fn take(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.socket.read_exact(&mut bytes).unwrap();
        bytes
    }
}

pub(crate) fn request(command: u16, flags: u16, cookie: u64, offset: u64, len: u32) -> Vec<u8> {
    let head = [&0x2560_9513_u32.to_be_bytes()[..], &flags.to_be_bytes(), &command.to_be_bytes()].concat();
    [&head[..], &cookie.to_be_bytes(), &offset.to_be_bytes(), &len.to_be_bytes()].concat()
}

/// Whether the server closes the connection, after any number of bytes.
pub(crate) fn is_closed(socket: &mut UnixStream) -> bool {
    let mut bytes = [0; 4096];
    loop {
        match socket.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return error.kind() == ErrorKind::ConnectionReset,
        }
    }
}

/// Waits until the condition holds.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < end, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub(crate) fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i / 3 + i / 512) as u8 ^ seed).collect()
}
