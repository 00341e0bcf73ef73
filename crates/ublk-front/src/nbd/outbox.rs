//! Replies on their way out.

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use std::collections::VecDeque;
use std::io::IoSlice;

/// Most replies in one system call.
const BATCH_REPLIES: usize = 32;
/// Data buffers kept for the next reads, and the longest of them.
const SPARE_BUFFERS_MAX: usize = 16;
const SPARE_BYTES_MAX: usize = 256 * 1024;

/// A reply, or a chunk of one.
#[derive(Debug)]
pub(super) struct ReplyPart {
    head: Vec<u8>,
    data: Vec<u8>,
    /// Reserved bytes that are free when it is sent.
    pub(super) reserved: usize,
}

impl ReplyPart {
    pub(super) fn plain(head: Vec<u8>) -> Self {
        Self { head, data: Vec::new(), reserved: 0 }
    }

    pub(super) fn with_data(head: Vec<u8>, data: Vec<u8>) -> Self {
        let reserved = data.len();
        Self { head, data, reserved }
    }

    fn len(&self) -> usize {
        self.head.len() + self.data.len()
    }
}

/// Which thread may send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sending {
    /// Any.
    #[default]
    Idle,
    /// One thread sends.
    Busy,
    /// The socket is full: the reader sends when it is writable.
    Stalled,
}

/// Replies in order.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    parts: VecDeque<ReplyPart>,
    /// Replies that a thread is sending.
    in_flight: usize,
    /// Bytes of the first reply that are sent already.
    head_sent: usize,
    sending: Sending,
    is_corked: bool,
    spare: Vec<Vec<u8>>,
}

/// Replies taken out to be sent.
#[derive(Debug)]
pub(super) struct SendBatch {
    parts: VecDeque<ReplyPart>,
    head_sent: usize,
    would_block: bool,
}

impl Outbox {
    pub(super) fn corked() -> Self {
        Self { is_corked: true, ..Self::default() }
    }

    pub(super) fn push(&mut self, part: ReplyPart) {
        self.parts.push_back(part);
    }

    /// Replies not yet sent.
    pub(super) fn len(&self) -> usize {
        self.parts.len() + self.in_flight
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

    /// The socket is writable again.
    pub(super) fn resume(&mut self) {
        if self.is_stalled() {
            self.sending = Sending::Idle;
        }
    }

    pub(super) fn clear(&mut self) {
        self.parts.clear();
        self.sending = Sending::Idle;
    }

    /// A buffer for data, recycled if possible.
    pub(super) fn spare(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// What to send now. The caller is the sender until it returns the batch.
    pub(super) fn take_batch(&mut self) -> Option<SendBatch> {
        if self.is_corked || self.sending != Sending::Idle || self.parts.is_empty() {
            return None;
        }
        self.sending = Sending::Busy;
        let count = self.parts.len().min(BATCH_REPLIES);
        self.in_flight = count;
        Some(SendBatch { parts: self.parts.drain(..count).collect(), head_sent: std::mem::take(&mut self.head_sent), would_block: false })
    }

    /// Returns a batch after sending: reserved bytes that are free now, and whether the socket is
    /// full.
    pub(super) fn finish_batch(&mut self, batch: SendBatch) -> (usize, bool) {
        self.in_flight = 0;
        self.sending = if batch.would_block { Sending::Stalled } else { Sending::Idle };
        let (mut freed, mut sent) = (0, batch.head_sent);
        let mut unsent = VecDeque::new();
        for part in batch.parts {
            if unsent.is_empty() && sent >= part.len() {
                sent -= part.len();
                freed += part.reserved;
                self.recycle(part.data);
            } else {
                unsent.push_back(part);
            }
        }
        self.head_sent = sent;
        unsent.append(&mut self.parts);
        self.parts = unsent;
        (freed, batch.would_block)
    }

    fn recycle(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < SPARE_BUFFERS_MAX && (1..=SPARE_BYTES_MAX).contains(&buffer.capacity()) {
            self.spare.push(buffer);
        }
    }
}

impl SendBatch {
    /// Sends as much as the socket takes.
    pub(super) fn send(&mut self, socket: &OwnedFd) -> Result<(), Errno> {
        let total: usize = self.parts.iter().map(ReplyPart::len).sum();
        while self.head_sent < total {
            let slices = self.slices();
            let mut no_control = SendAncillaryBuffer::default();
            match sendmsg(socket, &slices, &mut no_control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(sent) => self.head_sent += sent,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.would_block = true;
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn slices(&self) -> Vec<IoSlice<'_>> {
        let mut skip = self.head_sent;
        let both = self.parts.iter().flat_map(|part| [&part.head, &part.data]);
        let unsent = both.filter_map(|bytes| {
            let skipped = skip.min(bytes.len());
            skip -= skipped;
            let bytes = &bytes[skipped..];
            (!bytes.is_empty()).then(|| IoSlice::new(bytes))
        });
        unsent.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_full_socket_preserves_order_and_content() {
        let (socket, peer) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        let mut peer = UnixStream::from(peer);
        let mut outbox = Outbox::default();
        let mut expected = Vec::new();
        for i in 0..100_u8 {
            let data = vec![i; 10_000 + usize::from(i)];
            expected.push(200 + i % 50);
            expected.extend(&data);
            outbox.push(ReplyPart::with_data(vec![200 + i % 50], data));
        }
        let (mut back, mut freed, mut stalls) = (Vec::new(), 0, 0);
        while outbox.len() > 0 {
            let mut batch = outbox.take_batch().unwrap();
            assert!(outbox.take_batch().is_none(), "two senders");
            batch.send(&socket).unwrap();
            let (bytes, would_block) = outbox.finish_batch(batch);
            freed += bytes;
            if would_block {
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
