//! A connection of the server, whoever drives it: receives, sends back what came, and again.

use std::net::TcpStream;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// What the server has receive_buffer for.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerLimits {
    pub(super) connections: usize,
    /// Bytes that are received at once.
    pub(super) size: usize,
}

/// What is to be done next.
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
    /// Takes over a descriptor that accept(2) gave.
    pub(super) fn accepted(fd: RawFd, size: usize) -> std::io::Result<Self> {
        // SAFETY: accept(2) has just made it, and nobody else knows it.
        let stream = TcpStream::from(unsafe { OwnedFd::from_raw_fd(fd) });
        Self::new(stream, size)
    }

    pub(super) fn new(stream: TcpStream, size: usize) -> std::io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { stream, bytes: vec![0; size].into(), filled: 0, sent: 0, next_step: NextStep::Receive })
    }

    pub(super) fn fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    /// Where to receive to.
    pub(super) fn receive_buffer(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// What is still to be sent.
    pub(super) fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..self.filled]
    }

    /// The complete to the next_step: bytes, or an errno below zero.
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

    /// Its slot. A connection for which there is none is closed.
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
    fn what_came_goes_back_in_pieces() {
        let mut one = connection();
        assert_eq!((one.complete(5), one.unsent().len()), (NextStep::Send, 5));
        assert_eq!((one.complete(2), one.unsent().len()), (NextStep::Send, 3));
        assert_eq!(one.complete(3), NextStep::Receive);
        assert_eq!((one.complete(8), one.complete(8)), (NextStep::Send, NextStep::Receive));
        assert_eq!(one.complete(0), NextStep::Close);
        assert_eq!(connection().complete(-libc::ECONNRESET), NextStep::Close);
    }

    #[test]
    fn slots_are_used_again() {
        let mut slots = ConnectionSlots::new(2);
        assert_eq!([slots.add(connection()), slots.add(connection()), slots.add(connection())], [Some(0), Some(1), None]);
        slots.close(0);
        slots.close(0);
        assert!(slots.get(0).is_none() && slots.get(1).is_some() && slots.get(7).is_none());
        assert_eq!([slots.add(connection()), slots.add(connection())], [Some(0), None]);
    }
}
