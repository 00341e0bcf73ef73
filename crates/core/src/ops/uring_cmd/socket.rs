//! The commands that sockets take (`SOCKET_URING_OP_*`).

use uringlet_abi::uring_cmd;
use uringlet_sys::io::{self, Res, SOL_SOCKET};
use uringlet_sys::{Errno, UserPtr};

/// The fields of a command to a socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct SocketCmd {
    pub(super) op: u32,
    pub(super) len: u32,
    /// `IORING_URING_CMD_*`.
    pub(super) flags: u32,
    /// An address, or the level and the option.
    pub(super) addr: u64,
    /// Address of the option's value, or of an address' length.
    pub(super) value: UserPtr,
    /// Length of the option's value, bytes; or whether the peer is meant.
    pub(super) optlen: u32,
}

/// Runs a command. Returns the CQE's result.
///
/// # Errors
/// `EOPNOTSUPP` an unknown command, one that the address family does not have, or a file that is no
/// socket any more; else those of the system calls.
pub(super) fn run(cmd: SocketCmd, fd: i32) -> Res {
    let result = match cmd.op {
        uring_cmd::SIOCINQ => queued_bytes(fd, io::bytes_readable),
        uring_cmd::SIOCOUTQ => queued_bytes(fd, io::bytes_unsent),
        uring_cmd::GETSOCKOPT => getsockopt(cmd, fd),
        uring_cmd::SETSOCKOPT => io::setsockopt(fd, cmd.level(), cmd.option(), cmd.value, cmd.optlen),
        uring_cmd::GETSOCKNAME => getsockname(cmd, fd),
        _ => Err(Errno::EOPNOTSUPP),
    };
    result.map_err(|errno| if errno == Errno::ENOTSOCK { Errno::EOPNOTSUPP } else { errno })
}

impl SocketCmd {
    fn level(self) -> u32 {
        (self.addr & 0xffff_ffff) as u32
    }

    fn option(self) -> u32 {
        (self.addr >> 32) as u32
    }
}

/// Only protocols of the internet have these commands: elsewhere ioctl(2) answers, and the ring
/// does not.
fn queued_bytes(fd: i32, ask: fn(i32) -> Result<i32, Errno>) -> Res {
    const AF_INET: i32 = 2;
    const AF_INET6: i32 = 10;
    match io::socket_option(fd, io::SO_DOMAIN)? {
        AF_INET | AF_INET6 => ask(fd).map(|bytes| usize::try_from(bytes).unwrap_or_default()),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

/// Returns the length of the value.
fn getsockopt(cmd: SocketCmd, fd: i32) -> Res {
    if cmd.level() != SOL_SOCKET {
        return Err(Errno::EOPNOTSUPP);
    }
    io::getsockopt(fd, SOL_SOCKET, cmd.option(), cmd.value, cmd.optlen)
}

/// The socket's own address, or its peer's.
fn getsockname(cmd: SocketCmd, fd: i32) -> Res {
    if cmd.len != 0 || cmd.flags != 0 {
        return Err(Errno::EINVAL);
    }
    let (addr, len) = (UserPtr::at(cmd.addr), cmd.value);
    match cmd.optlen {
        0 => io::getsockname(fd, addr, len),
        1 => io::getpeername(fd, addr, len),
        _ => Err(Errno::EINVAL),
    }
}
