//! A connection of the server, whoever drives it: receives, sends back what came, and again.

use std::net::TcpStream;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// What the server has room for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) connections: usize,
    /// Bytes that are received at once.
    pub(super) size: usize,
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Receive,
    Send,
    Close,
}

#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    bytes: Box<[u8]>,
    filled: usize,
    sent: usize,
    pub(super) step: Step,
}

impl Connection {
    /// Takes over a descriptor that accept(2) gave.
    pub(super) fn accepted(fd: RawFd, size: usize) -> std::io::Result<Self> {
        // SAFETY: accept(2) has just made it, and nobody else knows it.
        let stream = TcpStream::from(unsafe { OwnedFd::from_raw_fd(fd) });
        Self::new(stream, size)
    }

    pub(super) fn new(stream: TcpStream, size: usize) -> std::io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { stream, bytes: vec![0; size].into(), filled: 0, sent: 0, step: Step::Receive })
    }

    pub(super) fn fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    /// Where to receive to.
    pub(super) fn room(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// What is still to be sent.
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.sent..self.filled]
    }

    /// The answer to the step: bytes, or an errno below zero.
    pub(super) fn answer(&mut self, answer: i32) -> Step {
        self.step = match (self.step, usize::try_from(answer)) {
            (_, Err(_)) => {
                if ![-libc::ECONNRESET, -libc::EPIPE].contains(&answer) {
                    eprintln!("{:?}: {}", self.step, std::io::Error::from_raw_os_error(-answer));
                }
                Step::Close
            }
            (Step::Receive, Ok(0)) | (Step::Close, _) => Step::Close,
            (Step::Receive, Ok(n)) => {
                (self.filled, self.sent) = (n, 0);
                Step::Send
            }
            (Step::Send, Ok(n)) => {
                self.sent += n;
                if self.sent < self.filled { Step::Send } else { Step::Receive }
            }
        };
        self.step
    }
}

/// All connections, each in a slot.
#[derive(Debug)]
pub(super) struct Slots {
    slots: Vec<Option<Connection>>,
    free: Vec<usize>,
}

impl Slots {
    pub(super) fn new(count: usize) -> Self {
        Self { slots: (0..count).map(|_| None).collect(), free: (0..count).rev().collect() }
    }

    /// Its slot. A connection for which there is none is closed.
    pub(super) fn add(&mut self, connection: Connection) -> Option<usize> {
        let slot = self.free.pop()?;
        self.slots[slot] = Some(connection);
        Some(slot)
    }

    pub(super) fn get(&mut self, slot: usize) -> Option<&mut Connection> {
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

    fn connection() -> Connection {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        Connection::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap(), 8).unwrap()
    }

    #[test]
    fn what_came_goes_back_in_pieces() {
        let mut one = connection();
        assert_eq!((one.answer(5), one.rest().len()), (Step::Send, 5));
        assert_eq!((one.answer(2), one.rest().len()), (Step::Send, 3));
        assert_eq!(one.answer(3), Step::Receive);
        assert_eq!((one.answer(8), one.answer(8)), (Step::Send, Step::Receive));
        assert_eq!(one.answer(0), Step::Close);
        assert_eq!(connection().answer(-libc::ECONNRESET), Step::Close);
    }

    #[test]
    fn slots_are_used_again() {
        let mut slots = Slots::new(2);
        assert_eq!([slots.add(connection()), slots.add(connection()), slots.add(connection())], [Some(0), Some(1), None]);
        slots.close(0);
        slots.close(0);
        assert!(slots.get(0).is_none() && slots.get(1).is_some() && slots.get(7).is_none());
        assert_eq!([slots.add(connection()), slots.add(connection())], [Some(0), None]);
    }
}
