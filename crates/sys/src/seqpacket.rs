//! Packets over a unix socket (SOCK_SEQPACKET), and descriptors with them: the engine's connection
//! to the ublk broker.

use crate::fd::EngineFd;
use crate::linux::general::{O_CLOEXEC, O_RDWR, iovec};
use crate::linux::net::{
    AF_UNIX, MSG_CMSG_CLOEXEC, MSG_DONTWAIT, MSG_NOSIGNAL, SCM_RIGHTS, SHUT_RDWR, SOCK_SEQPACKET, SOL_SOCKET, cmsghdr, msghdr, sockaddr_un,
};
use syscalls::{Errno, Sysno, syscall};

/// `SOCK_CLOEXEC` is `O_CLOEXEC` by definition; linux-raw-sys does not have it.
const SOCK_CLOEXEC: u32 = O_CLOEXEC;
/// Most descriptors that a packet may carry.
pub const FDS_MAX: usize = 2;

/// `struct cmsghdr` with room for descriptors.
#[repr(C)]
struct FdsMessage {
    header: cmsghdr,
    fds: [i32; FDS_MAX],
}

/// An end of a connection; its number is the engine's.
#[derive(Debug)]
pub struct Seqpacket(EngineFd);

impl Seqpacket {
    /// Connects to the socket at a path, which is at most 107 bytes long.
    ///
    /// # Errors
    /// `ENAMETOOLONG`; those of socket(2) and connect(2): `ENOENT` and `ECONNREFUSED` if nobody
    /// listens.
    pub fn connect(path: &[u8]) -> Result<Self, Errno> {
        let mut address = sockaddr_un { sun_family: AF_UNIX as u16, sun_path: [0; 108] };
        if path.len() >= address.sun_path.len() {
            return Err(Errno::ENAMETOOLONG);
        }
        for (to, from) in address.sun_path.iter_mut().zip(path) {
            *to = from.cast_signed();
        }
        // SAFETY: no addresses.
        let fd = unsafe { syscall!(Sysno::socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0) }?;
        let socket = Self(EngineFd::adopt(fd as i32));
        // SAFETY: the kernel reads the live address.
        unsafe { syscall!(Sysno::connect, socket.0.number(), &raw const address, size_of::<sockaddr_un>()) }?;
        Ok(socket)
    }

    /// Sends a packet, waiting for room.
    ///
    /// # Errors
    /// Those of sendto(2): `EPIPE`, `ECONNRESET` the other side is gone.
    pub fn send(&self, bytes: &[u8]) -> Result<(), Errno> {
        self.send_with(bytes, 0)
    }

    /// Unblocks a thread of the other side, by a packet without meaning.
    pub fn ring_doorbell(&self) {
        // A full socket has enough wake-ups under way; after any other error there is no thread to
        // wake.
        let _ = self.send_with(&[0], MSG_DONTWAIT);
    }

    /// Sends a packet with a copy of a descriptor.
    ///
    /// # Errors
    /// Those of sendmsg(2).
    pub fn send_fd(&self, bytes: &[u8], fd: i32) -> Result<(), Errno> {
        let len = size_of::<cmsghdr>() + size_of::<i32>();
        let header = cmsghdr { cmsg_len: len, cmsg_level: SOL_SOCKET.cast_signed(), cmsg_type: SCM_RIGHTS.cast_signed() };
        let mut control = FdsMessage { header, fds: [fd, -1] };
        let mut iov = iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() as u64 };
        let header = msghdr {
            msg_name: core::ptr::null_mut(),
            msg_namelen: 0,
            msg_iov: (&raw mut iov).cast(),
            msg_iovlen: 1,
            msg_control: (&raw mut control).cast(),
            msg_controllen: len,
            msg_flags: 0,
        };
        loop {
            // SAFETY: the kernel reads the live slice and the control message, as far as their
            // lengths say.
            match unsafe { syscall!(Sysno::sendmsg, self.0.number(), &raw const header, MSG_NOSIGNAL) } {
                Err(Errno::EINTR) => {}
                result => return result.map(drop),
            }
        }
    }

    /// Becomes an end of another connection. The number stays, so threads and forked children need
    /// not know.
    ///
    /// # Errors
    /// Those of dup3(2).
    pub fn replace(&self, other: &Self) -> Result<(), Errno> {
        // SAFETY: both numbers are the engine's.
        unsafe { syscall!(Sysno::dup3, other.0.number(), self.0.number(), O_CLOEXEC) }.map(drop)
    }

    fn send_with(&self, bytes: &[u8], flags: u32) -> Result<(), Errno> {
        loop {
            // SAFETY: the kernel reads a live slice.
            match unsafe { syscall!(Sysno::sendto, self.0.number(), bytes.as_ptr(), bytes.len(), flags | MSG_NOSIGNAL, 0, 0) } {
                Err(Errno::EINTR) => {}
                result => return result.map(drop),
            }
        }
    }

    /// Waits for a packet. Returns its length in bytes (0: the other side is gone) and the
    /// descriptors that came with it.
    ///
    /// # Errors
    /// Those of recvmsg(2).
    pub fn receive(&self, bytes: &mut [u8]) -> Result<(usize, [Option<EngineFd>; FDS_MAX]), Errno> {
        let mut control = FdsMessage { header: cmsghdr { cmsg_len: 0, cmsg_level: 0, cmsg_type: 0 }, fds: [-1; FDS_MAX] };
        let mut iov = iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() as u64 };
        let mut header = msghdr {
            msg_name: core::ptr::null_mut(),
            msg_namelen: 0,
            msg_iov: (&raw mut iov).cast(),
            msg_iovlen: 1,
            msg_control: (&raw mut control).cast(),
            msg_controllen: size_of::<FdsMessage>(),
            msg_flags: 0,
        };
        let len = loop {
            // SAFETY: the kernel writes to the live slice and the control message, as far as their
            // lengths say.
            match unsafe { syscall!(Sysno::recvmsg, self.0.number(), &raw mut header, MSG_CMSG_CLOEXEC) } {
                Err(Errno::EINTR) => {}
                Err(Errno::ECONNRESET) => break 0,
                result => break result?,
            }
        };
        let kind = (control.header.cmsg_level, control.header.cmsg_type);
        let has_fds = header.msg_controllen > 0 && kind == (SOL_SOCKET.cast_signed(), SCM_RIGHTS.cast_signed());
        let fds = control.fds.map(|fd| (has_fds && fd >= 0).then(|| EngineFd::adopt(fd)));
        Ok((len, fds))
    }

    /// Waits until a packet comes. Returns false if the other side is gone.
    #[must_use]
    pub fn wait_doorbell(&self) -> bool {
        matches!(self.receive(&mut [0; 1]), Ok((1.., _)))
    }

    /// In a forked child: replaces the descriptor by `/dev/null`. Otherwise the connection would
    /// not end with the parent.
    pub fn detach(&self) {
        // SAFETY: a NUL-terminated path; the number is the engine's, and its users get errors from
        // now on.
        unsafe {
            if let Ok(nothing) = syscall!(Sysno::open, c"/dev/null".as_ptr(), O_RDWR | O_CLOEXEC, 0) {
                let _ = syscall!(Sysno::dup3, nothing, self.0.number(), O_CLOEXEC);
                let _ = syscall!(Sysno::close, nothing);
            }
        }
    }

    /// Ends the connection. Threads that wait on it return.
    pub fn shutdown(&self) {
        // SAFETY: no addresses. An error means that the connection has ended already.
        let _ = unsafe { syscall!(Sysno::shutdown, self.0.number(), SHUT_RDWR) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connecting_without_a_listener_fails() {
        assert_eq!(Seqpacket::connect(b"/nowhere/at/all").map(drop), Err(Errno::ENOENT));
        assert_eq!(Seqpacket::connect(&[b'a'; 108]).map(drop), Err(Errno::ENAMETOOLONG));
    }

    #[test]
    fn a_connection_is_replaced_under_its_number() {
        let pair = || {
            let mut fds = [0_i32; 2];
            // SAFETY: the kernel writes two numbers.
            unsafe { syscall!(Sysno::socketpair, AF_UNIX, SOCK_SEQPACKET, 0, fds.as_mut_ptr()) }.unwrap();
            fds.map(|fd| Seqpacket(EngineFd::adopt(fd)))
        };
        let ([here, gone], [next, there]) = (pair(), pair());
        drop(gone);
        here.replace(&next).unwrap();
        drop(next);
        here.send_fd(b"with", there.0.number()).unwrap();
        let mut bytes = [0; 8];
        let (len, [first, second]) = there.receive(&mut bytes).unwrap();
        assert_eq!((len, second.is_none()), (4, true));
        // The descriptor that came is another one for the same end.
        let copy = Seqpacket(first.unwrap());
        here.send(b"once").unwrap();
        assert!(matches!(copy.receive(&mut bytes), Ok((4, _))));
    }

    #[test]
    fn packets_arrive_until_the_peer_is_gone() {
        let mut fds = [0_i32; 2];
        // SAFETY: the kernel writes two numbers.
        unsafe { syscall!(Sysno::socketpair, AF_UNIX, SOCK_SEQPACKET, 0, fds.as_mut_ptr()) }.unwrap();
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
