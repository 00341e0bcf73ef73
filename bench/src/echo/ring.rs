//! The server on a ring: an ordinary liburing program.

use super::connection::{ConnectionSlots, EchoConnection, NextStep, ServerLimits};
use crate::sys::liburing::{LibRing, accepted_fd};
use anyhow::ensure;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use uringlet_abi::{Opcode, Sqe, setup, sqe};

/// The user_data of accept. Those of connections are their slots.
const ACCEPT: u64 = u64::MAX;

/// How the server uses its ring.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RingOptions {
    /// IORING_SETUP_DEFER_TASKRUN, with SINGLE_ISSUER.
    pub(super) defers: bool,
    pub(super) registers_files: bool,
    /// IOSQE_ASYNC on every receive and send; the maximum of unbounded workers.
    pub(super) async_workers: Option<u32>,
}

struct RingServer<'a> {
    ring: LibRing,
    slots: ConnectionSlots,
    listener: &'a TcpListener,
    size: usize,
    options: RingOptions,
}

pub(super) fn serve(
    listener: &TcpListener,
    limits: ServerLimits,
    options: RingOptions,
    on_ready: impl FnOnce() -> io::Result<()>,
) -> anyhow::Result<()> {
    let flags = if options.defers { setup::SINGLE_ISSUER | setup::DEFER_TASKRUN } else { 0 };
    // One request in flight per connection, and one accept.
    let mut ring = LibRing::with_flags((limits.connections as u32 + 1).next_power_of_two(), flags)?;
    if options.registers_files {
        ring.register_files(&vec![-1; limits.connections])?;
    }
    if let Some(workers) = options.async_workers {
        ring.limit_unbounded_workers(workers)?;
    }
    let mut server = RingServer { ring, slots: ConnectionSlots::new(limits.connections), listener, size: limits.size, options };
    server.accept();
    on_ready()?;
    server.run()
}

impl RingServer<'_> {
    fn run(&mut self) -> anyhow::Result<()> {
        let mut completions = Vec::new();
        loop {
            let submitted = self.ring.submit_and_wait(1);
            ensure!(submitted >= 0 || submitted == -libc::EINTR, "io_uring_submit_and_wait: {}", os_error(submitted));
            self.ring.for_each_cqe(|user_data, res| completions.push((user_data, res)));
            for (user_data, res) in completions.drain(..) {
                if user_data == ACCEPT {
                    self.accepted(res)?;
                } else {
                    self.io_done(user_data as usize, res)?;
                }
            }
        }
    }

    fn accept(&mut self) {
        let fd = self.listener.as_raw_fd();
        *self.ring.get_sqe() =
            Sqe { opcode: Opcode::Accept as u8, fd, op_flags: libc::SOCK_CLOEXEC as u32, user_data: ACCEPT, ..Sqe::default() };
    }

    fn accepted(&mut self, res: i32) -> anyhow::Result<()> {
        ensure!(res >= 0, "accept: {}", os_error(res));
        self.accept();
        let connection = EchoConnection::new(TcpStream::from(accepted_fd(res)), self.size)?;
        let Some(slot) = self.slots.add(connection) else { return Ok(()) };
        if self.options.registers_files {
            self.ring.update_file(slot as u32, res)?;
        }
        self.submit(slot);
        Ok(())
    }

    fn io_done(&mut self, slot: usize, res: i32) -> anyhow::Result<()> {
        let Some(connection) = self.slots.get(slot) else { return Ok(()) };
        if connection.complete(res) != NextStep::Close {
            self.submit(slot);
            return Ok(());
        }
        if self.options.registers_files {
            self.ring.update_file(slot as u32, -1)?;
        }
        self.slots.close(slot);
        Ok(())
    }

    /// Submits the connection's next operation. Its buffer stays in place until the completion.
    fn submit(&mut self, slot: usize) {
        let Some(connection) = self.slots.get(slot) else { return };
        let (opcode, addr, len) = match connection.next_step {
            NextStep::Receive => (Opcode::Recv, connection.receive_buffer().as_mut_ptr() as u64, connection.receive_buffer().len()),
            _ => (Opcode::Send, connection.unsent().as_ptr() as u64, connection.unsent().len()),
        };
        let (fd, fixed) = if self.options.registers_files { (slot as i32, sqe::FIXED_FILE) } else { (connection.fd(), 0) };
        let flags = fixed | if self.options.async_workers.is_some() { sqe::ASYNC } else { 0 };
        let op_flags = if opcode == Opcode::Send { libc::MSG_NOSIGNAL as u32 } else { 0 };
        *self.ring.get_sqe() =
            Sqe { opcode: opcode as u8, flags, fd, addr, len: len as u32, op_flags, user_data: slot as u64, ..Sqe::default() };
    }
}

fn os_error(res: i32) -> io::Error {
    io::Error::from_raw_os_error(-res)
}
