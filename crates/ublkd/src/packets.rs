//! Packets over a unix socket, with the descriptors they carry.

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

/// Most descriptors in one packet.
const FDS_MAX: usize = 2;

pub(crate) fn socket() -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

pub(crate) fn connected(path: &Path) -> Result<OwnedFd, Errno> {
    let socket = socket()?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Sends one packet; blocks while the socket is full.
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
            // A packet is sent whole or not at all.
            Ok(_) => return Ok(()),
        }
    }
}

/// Sends a packet whose bytes mean nothing, which wakes a thread of the peer.
pub(crate) fn ring_doorbell(socket: impl AsFd) {
    // EAGAIN: enough doorbells are on their way. Other errors: the peer is gone.
    let _ = send_with(socket, &[0], &[], SendFlags::DONTWAIT);
}

/// Blocks until the doorbell rings. False: the peer is gone.
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
        // One byte more than the longest packet, so that a longer one is noticed.
        Self { bytes: vec![0; MESSAGE_MAX + 1] }
    }

    /// The next packet and its descriptors. Empty: the peer is gone. Blocks unless `flags` say
    /// otherwise.
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
