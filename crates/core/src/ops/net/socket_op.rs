//! `IORING_OP_SOCKET, SHUTDOWN, BIND, LISTEN`: make and close endpoints. None of them waits for a
//! peer.

use super::connect::SockAddr;
use super::socket::{SOCK_CLOEXEC, SOCK_NONBLOCK, invalidate_file_kind};
use crate::ops::fs::install_file;
use crate::ops::issue::{PrepCx, unused};
use crate::ops::outcome::Outcome;
use crate::ring_resources::RingResources;
use uringlet_abi::Sqe;
use uringlet_sys::{Errno, io};

/// A validated request of these opcodes.
#[derive(Debug)]
pub(crate) enum SocketOp {
    Socket { domain: u32, kind: u32, protocol: u32, file_index: u32 },
    Shutdown { how: u32 },
    Bind { addr: SockAddr },
    Listen { backlog: u32 },
}

impl SocketOp {
    /// Family, type with its flags, and protocol, as a filter of requests sees them.
    pub(crate) fn filter_details(&self) -> [u32; 3] {
        match *self {
            Self::Socket { domain, kind, protocol, .. } => [domain, kind, protocol],
            _ => [0; 3],
        }
    }
}

pub(crate) fn prep_socket(sqe: &Sqe, _: &PrepCx) -> Result<SocketOp, Errno> {
    const SOCK_TYPE_MASK: u32 = 0xf;
    unused(&[sqe.addr, sqe.op_flags.into(), sqe.buf_index.into()])?;
    let (kind, file_index) = (sqe.off as u32, sqe.file_index());
    let flags = kind & !SOCK_TYPE_MASK;
    if flags & !(SOCK_CLOEXEC | SOCK_NONBLOCK) != 0 || (file_index != 0 && flags & SOCK_CLOEXEC != 0) {
        return Err(Errno::EINVAL);
    }
    Ok(SocketOp::Socket { domain: sqe.fd as u32, kind, protocol: sqe.len, file_index })
}

pub(crate) fn prep_shutdown(sqe: &Sqe, _: &PrepCx) -> Result<SocketOp, Errno> {
    unused(&[sqe.off, sqe.addr, sqe.op_flags.into(), sqe.buf_index.into(), sqe.splice_fd_in as u64])?;
    Ok(SocketOp::Shutdown { how: sqe.len })
}

pub(crate) fn prep_bind(sqe: &Sqe, _: &PrepCx) -> Result<SocketOp, Errno> {
    unused(&[sqe.len.into(), sqe.buf_index.into(), sqe.op_flags.into(), sqe.splice_fd_in as u64])?;
    let addr = SockAddr::read(sqe.addr, sqe.addr2() as i32)?;
    Ok(SocketOp::Bind { addr })
}

pub(crate) fn prep_listen(sqe: &Sqe, _: &PrepCx) -> Result<SocketOp, Errno> {
    unused(&[sqe.addr, sqe.addr2(), sqe.buf_index.into(), sqe.op_flags.into(), sqe.splice_fd_in as u64])?;
    Ok(SocketOp::Listen { backlog: sqe.len })
}

impl SocketOp {
    pub(super) fn run(&mut self, fd: i32) -> Outcome {
        match self {
            Self::Socket { domain, kind, protocol, file_index } => {
                // A socket that becomes a registered file must not leak into a child while it has a
                // number.
                let flags = if *file_index == 0 { 0 } else { SOCK_CLOEXEC };
                io::socket(*domain, *kind | flags, *protocol)
            }
            Self::Shutdown { how } => return shutdown(fd, *how),
            Self::Bind { addr } => io::bind(fd, addr.ptr(), addr.len()),
            Self::Listen { backlog } => io::listen(fd, *backlog),
        }
        .into()
    }

    pub(super) fn finish(&mut self, ring: &mut RingResources, outcome: Outcome) -> Outcome {
        match self {
            Self::Socket { file_index, .. } if outcome.res >= 0 => {
                if *file_index != 0 {
                    return install_file(ring, outcome.res, *file_index).into();
                }
                invalidate_file_kind(outcome.res);
                ring.note_new_file(outcome.res);
                outcome
            }
            _ => outcome,
        }
    }
}

/// In the kernel an error of shutdown(2) breaks no link, unless the file is no socket.
fn shutdown(fd: i32, how: u32) -> Outcome {
    match io::shutdown(fd, how) {
        Err(errno @ (Errno::ENOTSOCK | Errno::EBADF)) => Outcome::err(errno),
        other => Outcome::result_ok(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CX: PrepCx = PrepCx { setup: 0, sqe_flags: 0, is_after_link: false, is_wide: false };

    #[test]
    fn registered_sockets_cannot_close_on_exec() {
        let socket =
            |kind: u32, file_index| prep_socket(&Sqe { fd: 2, off: kind.into(), splice_fd_in: file_index, ..Sqe::default() }, &CX).err();
        assert_eq!(socket(1 | SOCK_CLOEXEC, 0), None);
        assert_eq!(socket(1 | SOCK_CLOEXEC, 1), Some(Errno::EINVAL));
        assert_eq!(socket(1 | SOCK_NONBLOCK, 1), None);
        assert_eq!(socket(1 | 0x100, 0), Some(Errno::EINVAL));
    }

    #[test]
    fn unused_fields_are_zero() {
        let dirty = Sqe { buf_index: 1, ..Sqe::default() };
        for prep in [prep_socket, prep_shutdown, prep_bind, prep_listen] {
            assert_eq!(prep(&Sqe::default(), &CX).err(), None);
            assert_eq!(prep(&dirty, &CX).err(), Some(Errno::EINVAL));
        }
    }
}
