//! The server on epoll: level-triggered, one thread, one receive and one send per message.

use super::connection::{ConnectionSlots, EchoConnection, NextStep, ServerLimits};
use super::epoll_set::{BATCH, EpollSet};
use anyhow::ensure;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io;
use std::net::TcpListener;
use std::os::fd::BorrowedFd;

const LISTENER: u64 = u64::MAX;

/// A number of bytes, or a negated errno.
fn result_or_errno(result: rustix::io::Result<usize>) -> i32 {
    result.map_or_else(|errno| -errno.raw_os_error(), |n| i32::try_from(n).unwrap_or(i32::MAX))
}

/// recv(2) without blocking.
fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> rustix::io::Result<usize> {
    recv(fd, buffer, RecvFlags::DONTWAIT).map(|(n, _)| n)
}

pub(super) fn serve(listener: &TcpListener, limits: ServerLimits, on_ready: impl FnOnce() -> io::Result<()>) -> anyhow::Result<()> {
    let mut epoll = EpollSet::new()?;
    let mut slots = ConnectionSlots::new(limits.connections);
    let mut ready = Vec::with_capacity(BATCH);
    listener.set_nonblocking(true)?;
    epoll.add(listener, EventFlags::IN, LISTENER)?;
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

fn accept(epoll: &EpollSet, slots: &mut ConnectionSlots, listener: &TcpListener, size: usize) -> anyhow::Result<()> {
    match listener.accept() {
        Ok((stream, _)) => {
            let connection = EchoConnection::new(stream, size)?;
            if let Some(slot) = slots.add(connection)
                && let Some(connection) = slots.get(slot)
            {
                epoll.add(connection.stream(), EventFlags::IN, slot as u64)?;
            }
        }
        Err(error) => ensure!(error.kind() == io::ErrorKind::WouldBlock, "accept: {error}"),
    }
    Ok(())
}

/// Receives a message and sends it back, or sends the part that the socket did not take before.
fn handle_ready(epoll: &EpollSet, slots: &mut ConnectionSlots, data: u64) -> anyhow::Result<()> {
    let slot = data as usize;
    let Some(connection) = slots.get(slot) else { return Ok(()) };
    let waited_for_send = connection.next_step == NextStep::Send;
    loop {
        let result = match connection.next_step {
            NextStep::Receive => {
                let (stream, buffer) = connection.stream_and_buffer();
                receive(stream, buffer)
            }
            _ => send(connection.stream(), connection.unsent(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL),
        };
        if result == Err(Errno::AGAIN) {
            break;
        }
        match connection.complete(result_or_errno(result)) {
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
        epoll.modify(connection.stream(), if waits_for_send { EventFlags::OUT } else { EventFlags::IN }, data)?;
    }
    Ok(())
}
