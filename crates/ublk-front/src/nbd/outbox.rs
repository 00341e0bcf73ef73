//! Replies on their way out.

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use std::collections::VecDeque;
use std::io::IoSlice;

/// Replies that go into one system call.
const BATCH: usize = 32;
/// Buffers of data that are kept for the next reads, and the longest of them.
const SPARE_MAX: usize = 16;
const SPARE_LEN_MAX: usize = 256 * 1024;

/// A reply, or a chunk of one.
#[derive(Debug)]
pub(super) struct Part {
    head: Vec<u8>,
    data: Vec<u8>,
    /// Bytes of the connection's budget that are free when it has left.
    pub(super) budget: usize,
}

impl Part {
    pub(super) fn plain(head: Vec<u8>) -> Self {
        Self { head, data: Vec::new(), budget: 0 }
    }

    pub(super) fn with_data(head: Vec<u8>, data: Vec<u8>) -> Self {
        let budget = data.len();
        Self { head, data, budget }
    }

    fn len(&self) -> usize {
        self.head.len() + self.data.len()
    }
}

/// Who may send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sending {
    /// Whoever comes.
    #[default]
    Idle,
    /// One thread is at it.
    Busy,
    /// The socket is full: the reader goes on when it is not.
    Stalled,
}

/// Replies in their order.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    parts: VecDeque<Part>,
    /// Parts that somebody sends at this moment.
    leaving: usize,
    /// Bytes of the first part that have left already.
    begun: usize,
    sending: Sending,
    is_corked: bool,
    spare: Vec<Vec<u8>>,
}

/// Replies taken out to be sent.
#[derive(Debug)]
pub(super) struct Batch {
    parts: VecDeque<Part>,
    begun: usize,
    is_full: bool,
}

impl Outbox {
    pub(super) fn corked() -> Self {
        Self { is_corked: true, ..Self::default() }
    }

    pub(super) fn push(&mut self, part: Part) {
        self.parts.push_back(part);
    }

    /// Replies that have not left.
    pub(super) fn len(&self) -> usize {
        self.parts.len() + self.leaving
    }

    pub(super) fn cork(&mut self) {
        self.is_corked = true;
    }

    pub(super) fn uncork(&mut self) {
        self.is_corked = false;
    }

    pub(super) fn is_stalled(&self) -> bool {
        self.sending == Sending::Stalled
    }

    /// The socket takes bytes again.
    pub(super) fn resume(&mut self) {
        if self.is_stalled() {
            self.sending = Sending::Idle;
        }
    }

    pub(super) fn clear(&mut self) {
        self.parts.clear();
        self.sending = Sending::Idle;
    }

    /// A buffer for data.
    pub(super) fn spare(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// What to send now: the caller is the one who sends, until it gives the batch back.
    pub(super) fn take_batch(&mut self) -> Option<Batch> {
        if self.is_corked || self.sending != Sending::Idle || self.parts.is_empty() {
            return None;
        }
        self.sending = Sending::Busy;
        let count = self.parts.len().min(BATCH);
        self.leaving = count;
        Some(Batch { parts: self.parts.drain(..count).collect(), begun: std::mem::take(&mut self.begun), is_full: false })
    }

    /// After sending: bytes of the budget that are free, and whether the socket is full.
    pub(super) fn give_back(&mut self, batch: Batch) -> (usize, bool) {
        self.leaving = 0;
        self.sending = if batch.is_full { Sending::Stalled } else { Sending::Idle };
        let (mut freed, mut sent) = (0, batch.begun);
        let mut rest = VecDeque::new();
        for part in batch.parts {
            if rest.is_empty() && sent >= part.len() {
                sent -= part.len();
                freed += part.budget;
                self.keep(part.data);
            } else {
                rest.push_back(part);
            }
        }
        self.begun = sent;
        rest.append(&mut self.parts);
        self.parts = rest;
        (freed, batch.is_full)
    }

    fn keep(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < SPARE_MAX && (1..=SPARE_LEN_MAX).contains(&buffer.capacity()) {
            self.spare.push(buffer);
        }
    }
}

impl Batch {
    /// Sends as much as the socket takes.
    pub(super) fn send(&mut self, socket: &OwnedFd) -> Result<(), Errno> {
        let total: usize = self.parts.iter().map(Part::len).sum();
        while self.begun < total {
            let slices = self.slices();
            let mut no_control = SendAncillaryBuffer::default();
            match sendmsg(socket, &slices, &mut no_control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(sent) => self.begun += sent,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.is_full = true;
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn slices(&self) -> Vec<IoSlice<'_>> {
        let mut skip = self.begun;
        let both = self.parts.iter().flat_map(|part| [&part.head, &part.data]);
        let rest = both.filter_map(|bytes| {
            let skipped = skip.min(bytes.len());
            skip -= skipped;
            let bytes = &bytes[skipped..];
            (!bytes.is_empty()).then(|| IoSlice::new(bytes))
        });
        rest.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_full_socket_keeps_the_order_and_every_byte() {
        let (socket, peer) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        let mut peer = UnixStream::from(peer);
        let mut outbox = Outbox::default();
        let mut expected = Vec::new();
        for i in 0..100_u8 {
            let data = vec![i; 10_000 + usize::from(i)];
            expected.push(200 + i % 50);
            expected.extend(&data);
            outbox.push(Part::with_data(vec![200 + i % 50], data));
        }
        let (mut back, mut freed, mut stalls) = (Vec::new(), 0, 0);
        while outbox.len() > 0 {
            let mut batch = outbox.take_batch().unwrap();
            assert!(outbox.take_batch().is_none(), "two senders");
            batch.send(&socket).unwrap();
            let (bytes, is_full) = outbox.give_back(batch);
            freed += bytes;
            if is_full {
                stalls += 1;
                assert!(outbox.take_batch().is_none());
                outbox.resume();
                let mut some = vec![0; 70_001];
                let len = peer.read(&mut some).unwrap();
                back.extend(&some[..len]);
            }
        }
        drop(socket);
        peer.read_to_end(&mut back).unwrap();
        assert_eq!(back, expected);
        assert_eq!(freed, expected.len() - 100);
        assert!(stalls > 0, "the socket never was full");
    }
}
