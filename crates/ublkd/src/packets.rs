//! Packets over a unix socket, with a descriptor where one belongs.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg, sendmsg, socket_with,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::path::Path;
use uringlet_ublk::wire::MESSAGE_MAX;

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
    send_with(socket, bytes, None, SendFlags::empty())
}

pub(crate) fn send_with(socket: impl AsFd, bytes: &[u8], fd: Option<BorrowedFd<'_>>, flags: SendFlags) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = fd.as_slice();
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

/// Receives packets.
#[derive(Debug)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
}

impl Inbox {
    pub(crate) fn new() -> Self {
        // One byte more: what is too long shows.
        Self { bytes: vec![0; MESSAGE_MAX + 1] }
    }

    /// The next packet and the descriptor that it carries. Empty: the peer is gone. Sleeps unless `flags` say otherwise.
    pub(crate) fn receive(&mut self, socket: impl AsFd, flags: RecvFlags) -> Result<(&[u8], Option<OwnedFd>), Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
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
        let mut fd = None;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                fd = fds.into_iter().next();
            }
        }
        if received > MESSAGE_MAX {
            return Err(Errno::MSGSIZE);
        }
        Ok((&self.bytes[..received], fd))
    }
}
