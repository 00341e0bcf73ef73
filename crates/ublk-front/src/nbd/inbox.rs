//! The receive buffer of a connection.

use rustix::fd::AsFd;
use rustix::io::Errno;

/// Least bytes to read at once.
const READ_BYTES: usize = 64 * 1024;

/// Bytes received and not yet used.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

/// The result of one read from the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadOutcome {
    Data,
    /// No bytes now.
    WouldBlock,
    /// No bytes ever again.
    Eof,
}

impl Inbox {
    pub(super) fn len(&self) -> usize {
        self.end - self.start
    }

    /// The next `len` bytes, which must have been received.
    pub(super) fn take(&mut self, len: usize) -> &[u8] {
        assert!(len <= self.len());
        self.start += len;
        &self.bytes[self.start - len..self.start]
    }

    /// Drops up to `len` bytes; returns how many.
    pub(super) fn skip(&mut self, len: u64) -> u64 {
        let skipped = len.min(self.len() as u64);
        self.start += skipped as usize;
        skipped
    }

    /// Reads what is available, with room for at least `wanted` contiguous bytes. The socket is
    /// nonblocking.
    pub(super) fn read_from(&mut self, socket: impl AsFd, wanted: usize) -> ReadOutcome {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.bytes.len() - self.start < wanted || self.end == self.bytes.len() {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            let room = wanted.max(READ_BYTES);
            if self.bytes.len() < room {
                self.bytes.resize(room, 0);
            }
        }
        loop {
            return match rustix::io::read(&socket, &mut self.bytes[self.end..]) {
                Ok(0) => ReadOutcome::Eof,
                Ok(len) => {
                    self.end += len;
                    ReadOutcome::Data
                }
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => ReadOutcome::WouldBlock,
                Err(_) => ReadOutcome::Eof,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn bytes_keep_their_order_when_the_buffer_grows_or_moves() {
        let (mut client, server) = UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        let mut inbox = Inbox::default();
        let mut next = 0_u8;
        let mut sent = 0_u8;
        for len in [1, 70_000, 28, 150_000, 3] {
            while inbox.len() < len {
                let some: Vec<u8> = (0..30_000_u32).map(|i| sent.wrapping_add(i as u8)).collect();
                sent = sent.wrapping_add(30_000_u32 as u8);
                client.write_all(&some).unwrap();
                assert_eq!(inbox.read_from(&server, len), ReadOutcome::Data);
            }
            for byte in inbox.take(len) {
                assert_eq!(*byte, next);
                next = next.wrapping_add(1);
            }
        }
        let left = inbox.len() as u64;
        assert_eq!(inbox.skip(u64::MAX), left);
        while inbox.read_from(&server, 1) == ReadOutcome::Data {
            inbox.skip(u64::MAX);
        }
        assert_eq!(inbox.read_from(&server, 1), ReadOutcome::WouldBlock);
        drop(client);
        assert_eq!(inbox.read_from(&server, 1), ReadOutcome::Eof);
    }
}
