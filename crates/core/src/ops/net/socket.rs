//! Numbers of the socket interface, and questions about sockets.

use crate::file::FileKind;
use uringlet_sys::io::{self, MSG_DONTWAIT, MSG_WAITALL};
use uringlet_sys::{Errno, fd_table};

pub(super) const POLLIN: u32 = 1;
pub(super) const POLLPRI: u32 = 2;
pub(super) const POLLOUT: u32 = 4;
pub(super) const POLLERR: u32 = 8;
pub(super) const POLLRDNORM: u32 = 0x40;

pub(super) const AF_UNIX: i32 = 1;
pub(super) const AF_INET: i32 = 2;
pub(super) const AF_INET6: i32 = 10;
pub(super) const SOCK_STREAM: i32 = 1;
pub(super) const SOCK_SEQPACKET: i32 = 5;
pub(super) const SOCK_NONBLOCK: u32 = 0o4000;
pub(super) const SOCK_CLOEXEC: u32 = 0o2_000_000;
pub(super) const MSG_OOB: u32 = 1;
pub(super) const MSG_PEEK: u32 = 2;
pub(super) const MSG_CTRUNC: u32 = 8;
pub(super) const MSG_TRUNC: u32 = 0x20;
pub(super) const MSG_ERRQUEUE: u32 = 0x2000;

/// Size of `struct sockaddr_storage`.
pub(super) const ADDR_MAX: usize = 128;
pub(super) const MAX_IOVECS: u64 = 1024;

/// The error of a file that cannot be waited for as a socket (`*_POLL_FIRST`).
pub(super) fn must_be_socket(fd: i32) -> Result<(), Errno> {
    let kind = FileKind::refresh(fd);
    if kind.is_bad() {
        return Err(Errno::EBADF);
    }
    if kind.is_socket() { Ok(()) } else { Err(Errno::ENOTSOCK) }
}

/// The poll events that a receive waits for.
pub(super) fn receive_mask(msg_flags: u32) -> u32 {
    if msg_flags & MSG_ERRQUEUE != 0 {
        return POLLRDNORM | POLLERR | POLLPRI;
    }
    if msg_flags & MSG_OOB != 0 { POLLIN | POLLPRI } else { POLLIN }
}

/// Whether a short transfer with `MSG_WAITALL` is continued: not a datagram, and not a request that
/// may not wait.
pub(super) fn is_resumable(fd: i32, msg_flags: u32) -> bool {
    msg_flags & (MSG_WAITALL | MSG_DONTWAIT) == MSG_WAITALL
        && matches!(io::socket_option(fd, io::SO_TYPE), Ok(SOCK_STREAM | SOCK_SEQPACKET))
}

/// The flags of a try without sleeping.
pub(super) fn nonblocking(msg_flags: u32) -> u32 {
    msg_flags | MSG_DONTWAIT
}

/// Whether the program lets a request wait at all.
pub(super) fn may_wait(msg_flags: u32) -> bool {
    msg_flags & MSG_DONTWAIT == 0
}

/// Forgets the cached kind of a fresh descriptor's number: it may have been another file's that was
/// closed without the engine's knowledge.
pub(super) fn invalidate_file_kind(fd: i32) {
    if !fd_table::is_unused(fd) {
        fd_table::forget_kind(fd);
    }
}
