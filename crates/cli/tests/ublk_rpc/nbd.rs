//! A minimal NBD client for tests: one request at a time.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

const READ: u16 = 0;
const WRITE: u16 = 1;

pub(crate) struct Nbd {
    socket: UnixStream,
    pub(crate) size: u64,
}

impl Nbd {
    pub(crate) fn connect(socket: &Path, export: &str) -> Self {
        let mut socket = UnixStream::connect(socket).unwrap();
        socket.set_read_timeout(Some(crate::LONG)).unwrap();
        assert_eq!(&take::<18>(&mut socket), b"NBDMAGICIHAVEOPT\0\x03");
        // No zeroes, and EXPORT_NAME.
        let option = [&3_u32.to_be_bytes()[..], b"IHAVEOPT", &1_u32.to_be_bytes(), &(export.len() as u32).to_be_bytes()].concat();
        socket.write_all(&[&option, export.as_bytes()].concat()).unwrap();
        let size = u64::from_be_bytes(take(&mut socket));
        let _flags: [u8; 2] = take(&mut socket);
        Self { socket, size }
    }

    fn ask(&mut self, command: u16, at: u64, len: u32, data: &[u8]) -> Result<(), u32> {
        let head = [&0x2560_9513_u32.to_be_bytes()[..], &[0, 0], &command.to_be_bytes(), &at.to_be_bytes(), &at.to_be_bytes()].concat();
        self.socket.write_all(&[&head[..], &len.to_be_bytes(), data].concat()).unwrap();
        assert_eq!(take(&mut self.socket), 0x6744_6698_u32.to_be_bytes());
        let error = u32::from_be_bytes(take(&mut self.socket));
        assert_eq!(take(&mut self.socket), at.to_be_bytes());
        if error == 0 { Ok(()) } else { Err(error) }
    }

    /// The server's errno on failure.
    pub(crate) fn write(&mut self, at: u64, data: &[u8]) -> Result<(), u32> {
        self.ask(WRITE, at, data.len() as u32, data)
    }

    pub(crate) fn read(&mut self, at: u64, len: usize) -> Result<Vec<u8>, u32> {
        self.ask(READ, at, len as u32, &[])?;
        let mut data = vec![0; len];
        self.socket.read_exact(&mut data).unwrap();
        Ok(data)
    }

    /// False: the server has ended the connection.
    #[allow(dead_code, reason = "not every test kills its server")]
    pub(crate) fn try_write(&mut self, at: u64, data: &[u8]) -> bool {
        let mut head = [&0x2560_9513_u32.to_be_bytes()[..], &[0, 0, 0, 1], &at.to_be_bytes(), &at.to_be_bytes()].concat();
        head.extend((data.len() as u32).to_be_bytes());
        self.socket.write_all(&[&head, data].concat()).is_ok() && self.socket.read_exact(&mut [0; 16]).is_ok()
    }

    /// `None`: the server has ended the connection.
    #[allow(dead_code, reason = "not every test kills its server")]
    pub(crate) fn try_read(&mut self, at: u64, len: usize) -> Option<Vec<u8>> {
        let mut head = [&0x2560_9513_u32.to_be_bytes()[..], &[0; 4], &at.to_be_bytes(), &at.to_be_bytes()].concat();
        head.extend((len as u32).to_be_bytes());
        self.socket.write_all(&head).ok()?;
        let mut reply = vec![0; 16 + len];
        self.socket.read_exact(&mut reply).ok().map(|()| reply.split_off(16))
    }
}

fn take<const N: usize>(socket: &mut UnixStream) -> [u8; N] {
    let mut bytes = [0; N];
    socket.read_exact(&mut bytes).unwrap();
    bytes
}
