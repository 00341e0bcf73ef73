//! Packets over a unix socket, with descriptors where they belong.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType, connect, recv, recvmsg, sendmsg, socket_with,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::path::Path;
use uringlet_ublk::wire::MESSAGE_MAX;

/// Descriptors that a packet may carry.
const FDS_MAX: usize = 2;

pub(crate) fn socket() -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

pub(crate) fn connected(path: &Path) -> Result<OwnedFd, Errno> {
    let socket = socket()?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Sends one packet, sleeping where there is no room.
pub(crate) fn send(socket: impl AsFd, bytes: &[u8]) -> Result<(), Errno> {
    send_with(socket, bytes, &[], SendFlags::empty())
}

pub(crate) fn send_with(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>], flags: SendFlags) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    loop {
        match sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, flags | SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
            // A packet goes as a whole.
            Ok(_) => return Ok(()),
        }
    }
}

/// Wakes a thread of the other side: a packet whose bytes mean nothing.
pub(crate) fn ring_doorbell(socket: impl AsFd) {
    // Full means that enough of them are on their way; an error, that nobody is left to be woken.
    let _ = send_with(socket, &[0], &[], SendFlags::DONTWAIT);
}

/// Sleeps until the bell rings. False: the other side is gone.
pub(crate) fn wait_doorbell(socket: impl AsFd) -> bool {
    loop {
        match recv(&socket, &mut [0; 1], RecvFlags::empty()) {
            Err(Errno::INTR) => {}
            received => return matches!(received, Ok((len, _)) if len > 0),
        }
    }
}

/// Receives packets.
#[derive(Debug)]
pub(crate) struct PacketReceiver {
    bytes: Vec<u8>,
}

impl PacketReceiver {
    pub(crate) fn new() -> Self {
        // One byte more: what is too long shows.
        Self { bytes: vec![0; MESSAGE_MAX + 1] }
    }

    /// The next packet and the descriptors that it carries. Empty: the peer is gone. Sleeps unless `flags` say otherwise.
    pub(crate) fn receive(&mut self, socket: impl AsFd, flags: RecvFlags) -> Result<(&[u8], Vec<OwnedFd>), Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let mut room = [IoSliceMut::new(&mut self.bytes)];
            match recvmsg(&socket, &mut room, &mut control, flags | RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::INTR) => {}
                Err(Errno::CONNRESET) => break 0,
                Err(error) => return Err(error),
                Ok(received) => break received.bytes,
            }
        };
        let mut fds = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                fds.extend(received);
            }
        }
        if received > MESSAGE_MAX {
            return Err(Errno::MSGSIZE);
        }
        Ok((&self.bytes[..received], fds))
    }
}
