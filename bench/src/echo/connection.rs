//! The state of one server connection, independent of ring or epoll: receive, send back, repeat.

use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

/// Capacity of the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerLimits {
    pub(super) connections: usize,
    /// Size of a receive, bytes.
    pub(super) size: usize,
}

/// The next operation on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    Receive,
    Send,
    Close,
}

#[derive(Debug)]
pub(super) struct EchoConnection {
    stream: TcpStream,
    bytes: Box<[u8]>,
    filled: usize,
    sent: usize,
    pub(super) next_step: NextStep,
}

impl EchoConnection {
    pub(super) fn new(stream: TcpStream, size: usize) -> std::io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { stream, bytes: vec![0; size].into(), filled: 0, sent: 0, next_step: NextStep::Receive })
    }

    pub(super) fn fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    pub(super) fn stream(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    pub(super) fn stream_and_buffer(&mut self) -> (BorrowedFd<'_>, &mut [u8]) {
        (self.stream.as_fd(), &mut self.bytes)
    }

    /// The buffer for the next receive.
    pub(super) fn receive_buffer(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Received bytes that are still to be sent.
    pub(super) fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..self.filled]
    }

    /// Takes the result of the pending operation: a number of bytes, or a negated errno.
    pub(super) fn complete(&mut self, result: i32) -> NextStep {
        self.next_step = match (self.next_step, usize::try_from(result)) {
            (_, Err(_)) => {
                if ![-libc::ECONNRESET, -libc::EPIPE].contains(&result) {
                    eprintln!("{:?}: {}", self.next_step, std::io::Error::from_raw_os_error(-result));
                }
                NextStep::Close
            }
            (NextStep::Receive, Ok(0)) | (NextStep::Close, _) => NextStep::Close,
            (NextStep::Receive, Ok(n)) => {
                (self.filled, self.sent) = (n, 0);
                NextStep::Send
            }
            (NextStep::Send, Ok(n)) => {
                self.sent += n;
                if self.sent < self.filled { NextStep::Send } else { NextStep::Receive }
            }
        };
        self.next_step
    }
}

/// All connections, each in a slot.
#[derive(Debug)]
pub(super) struct ConnectionSlots {
    slots: Vec<Option<EchoConnection>>,
    free: Vec<usize>,
}

impl ConnectionSlots {
    pub(super) fn new(count: usize) -> Self {
        Self { slots: (0..count).map(|_| None).collect(), free: (0..count).rev().collect() }
    }

    /// Returns the slot. Closes the connection if none is free.
    pub(super) fn add(&mut self, connection: EchoConnection) -> Option<usize> {
        let slot = self.free.pop()?;
        self.slots[slot] = Some(connection);
        Some(slot)
    }

    pub(super) fn get(&mut self, slot: usize) -> Option<&mut EchoConnection> {
        self.slots.get_mut(slot)?.as_mut()
    }

    pub(super) fn close(&mut self, slot: usize) {
        if self.slots[slot].take().is_some() {
            self.free.push(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn connection() -> EchoConnection {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        EchoConnection::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap(), 8).unwrap()
    }

    #[test]
    fn a_message_is_sent_back_in_pieces() {
        let mut one = connection();
        assert_eq!((one.complete(5), one.unsent().len()), (NextStep::Send, 5));
        assert_eq!((one.complete(2), one.unsent().len()), (NextStep::Send, 3));
        assert_eq!(one.complete(3), NextStep::Receive);
        assert_eq!((one.complete(8), one.complete(8)), (NextStep::Send, NextStep::Receive));
        assert_eq!(one.complete(0), NextStep::Close);
        assert_eq!(connection().complete(-libc::ECONNRESET), NextStep::Close);
    }

    #[test]
    fn slots_are_reused() {
        let mut slots = ConnectionSlots::new(2);
        assert_eq!([slots.add(connection()), slots.add(connection()), slots.add(connection())], [Some(0), Some(1), None]);
        slots.close(0);
        slots.close(0);
        assert!(slots.get(0).is_none() && slots.get(1).is_some() && slots.get(7).is_none());
        assert_eq!([slots.add(connection()), slots.add(connection())], [Some(0), None]);
    }
}
