//! epoll, and the server on it: level-triggered, one thread, a receive and a send a message.

use super::connection::{ConnectionSlots, EchoConnection, NextStep, ServerLimits};
use anyhow::ensure;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

const BATCH: usize = 256;
const LISTENER: u64 = u64::MAX;
const IN: u32 = libc::EPOLLIN as u32;
const OUT: u32 = libc::EPOLLOUT as u32;

pub(super) struct Epoll {
    fd: OwnedFd,
    ready: Vec<libc::epoll_event>,
}

impl Epoll {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: no address.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd, ready: vec![libc::epoll_event { events: 0, u64: 0 }; BATCH] })
    }

    pub(super) fn add(&self, fd: RawFd, events: u32, data: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, events, data)
    }

    fn change(&self, fd: RawFd, events: u32, data: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, events, data)
    }

    fn control(&self, operation: i32, fd: RawFd, events: u32, data: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: data };
        // SAFETY: an event of our own.
        let ret = unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), operation, fd, &raw mut event) };
        if ret < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The data of those that are ready; none after this time, or after a signal.
    pub(super) fn wait(&mut self, limit: Option<Duration>, data: &mut Vec<u64>) -> io::Result<()> {
        let limit = limit.map_or(-1, |limit| i32::try_from(limit.as_millis()).unwrap_or(i32::MAX));
        data.clear();
        // SAFETY: receive_buffer for BATCH events.
        let count = unsafe { libc::epoll_wait(self.fd.as_raw_fd(), self.ready.as_mut_ptr(), BATCH as i32, limit) };
        match usize::try_from(count) {
            Ok(count) => data.extend(self.ready[..count].iter().map(|event| event.u64)),
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

/// recv(2) that never waits: bytes, or an errno below zero.
fn receive(fd: RawFd, receive_buffer: &mut [u8]) -> i32 {
    // SAFETY: receive_buffer of our own.
    result_or_errno(unsafe { libc::recv(fd, receive_buffer.as_mut_ptr().cast(), receive_buffer.len(), libc::MSG_DONTWAIT) })
}

/// send(2) that never waits: bytes, or an errno below zero.
fn send(fd: RawFd, bytes: &[u8]) -> i32 {
    // SAFETY: bytes of our own.
    result_or_errno(unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) })
}

fn result_or_errno(n: isize) -> i32 {
    let failure = || -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
    if n < 0 { failure() } else { n as i32 }
}

pub(super) fn serve(listener: &TcpListener, limits: ServerLimits, on_ready: impl FnOnce() -> io::Result<()>) -> anyhow::Result<()> {
    let mut epoll = Epoll::new()?;
    let mut slots = ConnectionSlots::new(limits.connections);
    let mut ready = Vec::with_capacity(BATCH);
    listener.set_nonblocking(true)?;
    epoll.add(listener.as_raw_fd(), IN, LISTENER)?;
    on_ready()?;
    loop {
        epoll.wait(None, &mut ready)?;
        for &data in &ready {
            if data == LISTENER {
                accept(&epoll, &mut slots, listener, limits.size)?;
            } else {
                handle_ready(&epoll, &mut slots, data)?;
            }
        }
    }
}

fn accept(epoll: &Epoll, slots: &mut ConnectionSlots, listener: &TcpListener, size: usize) -> anyhow::Result<()> {
    match listener.accept() {
        Ok((stream, _)) => {
            let connection = EchoConnection::new(stream, size)?;
            let fd = connection.fd();
            if let Some(slot) = slots.add(connection) {
                epoll.add(fd, IN, slot as u64)?;
            }
        }
        Err(error) => ensure!(error.kind() == io::ErrorKind::WouldBlock, "accept: {error}"),
    }
    Ok(())
}

/// What is ready: a message there and back, or the unsent of one that did not fit before.
fn handle_ready(epoll: &Epoll, slots: &mut ConnectionSlots, data: u64) -> anyhow::Result<()> {
    let slot = data as usize;
    let Some(connection) = slots.get(slot) else { return Ok(()) };
    let (fd, waited_for_send) = (connection.fd(), connection.next_step == NextStep::Send);
    loop {
        let result = match connection.next_step {
            NextStep::Receive => receive(fd, connection.receive_buffer()),
            _ => send(fd, connection.unsent()),
        };
        if result == -libc::EAGAIN {
            break;
        }
        match connection.complete(result) {
            NextStep::Send => {}
            NextStep::Receive => break,
            NextStep::Close => {
                slots.close(slot);
                return Ok(());
            }
        }
    }
    let waits_for_send = connection.next_step == NextStep::Send;
    if waits_for_send != waited_for_send {
        epoll.change(fd, if waits_for_send { OUT } else { IN }, data)?;
    }
    Ok(())
}
