//! Packets over a unix socket (SOCK_SEQPACKET), and descriptors with them: how the engine talks to a process of its own.

use crate::fd::EngineFd;
use syscalls::{Errno, Sysno, syscall};

const AF_UNIX: u16 = 1;
const SOCK_SEQPACKET: usize = 5;
const SOCK_CLOEXEC: usize = 0o2_000_000;
const MSG_DONTWAIT: usize = 0x40;
const MSG_NOSIGNAL: usize = 0x4000;
const MSG_CMSG_CLOEXEC: usize = 0x4000_0000;
const SOL_SOCKET: i32 = 1;
const SCM_RIGHTS: i32 = 1;
const SHUT_RDWR: usize = 2;
/// Descriptors that a packet may carry.
pub const FDS_MAX: usize = 2;

/// `struct sockaddr_un`
#[repr(C)]
struct Address {
    family: u16,
    path: [u8; 108],
}

/// `struct msghdr`
#[repr(C)]
struct MessageHeader {
    name: usize,
    name_len: u32,
    iov: *const [usize; 2],
    iov_len: usize,
    control: *mut ControlMessage,
    control_len: usize,
    flags: i32,
}

/// `struct cmsghdr` with room for descriptors.
#[repr(C)]
struct ControlMessage {
    len: usize,
    level: i32,
    kind: i32,
    fds: [i32; FDS_MAX],
}

/// An end of a connection; its number is the engine's.
#[derive(Debug)]
pub struct Seqpacket(EngineFd);

impl Seqpacket {
    /// Connects to the socket at a path, which is at most 107 bytes long.
    ///
    /// # Errors
    /// `ENAMETOOLONG`; those of socket(2) and connect(2): `ENOENT` and `ECONNREFUSED` if nobody listens.
    pub fn connect(path: &[u8]) -> Result<Self, Errno> {
        let mut address = Address { family: AF_UNIX, path: [0; 108] };
        if path.len() >= address.path.len() {
            return Err(Errno::ENAMETOOLONG);
        }
        address.path[..path.len()].copy_from_slice(path);
        // SAFETY: no addresses.
        let fd = unsafe { syscall!(Sysno::socket, usize::from(AF_UNIX), SOCK_SEQPACKET | SOCK_CLOEXEC, 0) }?;
        let socket = Self(EngineFd::adopt(fd as i32));
        // SAFETY: the kernel reads the live address.
        unsafe { syscall!(Sysno::connect, socket.0.number(), &raw const address, size_of::<Address>()) }?;
        Ok(socket)
    }

    /// Sends a packet, sleeping where there is no room.
    ///
    /// # Errors
    /// Those of sendto(2): `EPIPE`, `ECONNRESET` the other side is gone.
    pub fn send(&self, bytes: &[u8]) -> Result<(), Errno> {
        self.send_with(bytes, 0)
    }

    /// Wakes a thread of the other side: a packet whose bytes mean nothing.
    pub fn ring_doorbell(&self) {
        // Full means that enough of them are on their way; an error, that nobody is left to be woken.
        let _ = self.send_with(&[0], MSG_DONTWAIT);
    }

    fn send_with(&self, bytes: &[u8], flags: usize) -> Result<(), Errno> {
        loop {
            // SAFETY: the kernel reads a live slice.
            match unsafe { syscall!(Sysno::sendto, self.0.number(), bytes.as_ptr(), bytes.len(), flags | MSG_NOSIGNAL, 0, 0) } {
                Err(Errno::EINTR) => {}
                result => return result.map(drop),
            }
        }
    }

    /// Receives a packet, sleeping until there is one: its length, 0 if the other side is gone, and the descriptors that came with it.
    ///
    /// # Errors
    /// Those of recvmsg(2).
    pub fn receive(&self, bytes: &mut [u8]) -> Result<(usize, [Option<EngineFd>; FDS_MAX]), Errno> {
        let mut control = ControlMessage { len: 0, level: 0, kind: 0, fds: [-1; FDS_MAX] };
        let iov = [bytes.as_mut_ptr() as usize, bytes.len()];
        let mut header = MessageHeader {
            name: 0,
            name_len: 0,
            iov: &raw const iov,
            iov_len: 1,
            control: &raw mut control,
            control_len: size_of::<ControlMessage>(),
            flags: 0,
        };
        let len = loop {
            // SAFETY: the kernel writes to the live slice and the control message, as far as their lengths say.
            match unsafe { syscall!(Sysno::recvmsg, self.0.number(), &raw mut header, MSG_CMSG_CLOEXEC) } {
                Err(Errno::EINTR) => {}
                Err(Errno::ECONNRESET) => break 0,
                result => break result?,
            }
        };
        let has_fds = header.control_len > 0 && control.level == SOL_SOCKET && control.kind == SCM_RIGHTS;
        let fds = control.fds.map(|fd| (has_fds && fd >= 0).then(|| EngineFd::adopt(fd)));
        Ok((len, fds))
    }

    /// Sleeps until a packet comes. False: the other side is gone.
    #[must_use]
    pub fn wait_doorbell(&self) -> bool {
        matches!(self.receive(&mut [0; 1]), Ok((1.., _)))
    }

    /// In a forked child, whose copy would keep the connection from ending with its parent: the number stands for nothing from now on.
    pub fn detach(&self) {
        const O_RDWR: usize = 2;
        // SAFETY: a NUL-terminated path; the number is ours, and who uses it gets errors.
        unsafe {
            if let Ok(nothing) = syscall!(Sysno::open, c"/dev/null".as_ptr(), O_RDWR | SOCK_CLOEXEC, 0) {
                let _ = syscall!(Sysno::dup3, nothing, self.0.number(), SOCK_CLOEXEC);
                let _ = syscall!(Sysno::close, nothing);
            }
        }
    }

    /// Ends the connection, for whoever waits on it too.
    pub fn shutdown(&self) {
        // SAFETY: no addresses. Gone already is as good.
        let _ = unsafe { syscall!(Sysno::shutdown, self.0.number(), SHUT_RDWR) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_listens_where_nothing_is() {
        assert_eq!(Seqpacket::connect(b"/nowhere/at/all").map(drop), Err(Errno::ENOENT));
        assert_eq!(Seqpacket::connect(&[b'a'; 108]).map(drop), Err(Errno::ENAMETOOLONG));
    }

    #[test]
    fn packets_and_the_end() {
        let mut fds = [0_i32; 2];
        // SAFETY: the kernel writes two numbers.
        unsafe { syscall!(Sysno::socketpair, usize::from(AF_UNIX), SOCK_SEQPACKET, 0, fds.as_mut_ptr()) }.unwrap();
        let [here, there] = fds.map(|fd| Seqpacket(EngineFd::adopt(fd)));
        here.send(b"five!").unwrap();
        let mut bytes = [0; 8];
        assert!(matches!(there.receive(&mut bytes), Ok((5, [None, None]))));
        assert_eq!(&bytes[..5], b"five!");
        here.ring_doorbell();
        assert!(there.wait_doorbell());
        here.detach();
        assert!(!there.wait_doorbell());
        assert_eq!(there.send(b"x"), Err(Errno::EPIPE));
        assert_eq!(here.send(b"x"), Err(Errno::ENOTSOCK));
        there.shutdown();
    }
}
