//! Names of sockets: their addresses, as strace shows them.

use core::fmt::Write;
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use uringlet_sys::io::{self, SO_ACCEPTCONN, SO_PROTOCOL, SO_TYPE};
use uringlet_sys::{Errno, UserPtr};

const IPPROTO_TCP: i32 = 6;
const IPPROTO_UDP: i32 = 17;
const AF_UNIX: u16 = 1;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// Bytes of the longest address.
const ROOM: u32 = 128;

/// An address as the kernel writes it (`struct sockaddr_storage`).
#[derive(Clone, Copy, Debug)]
struct RawAddress {
    bytes: [u8; ROOM as usize],
    len: usize,
}

impl RawAddress {
    /// What getsockname(2) or getpeername(2) says.
    fn ask(fd: i32, call: fn(i32, UserPtr, UserPtr) -> Result<usize, Errno>) -> Option<Self> {
        let mut address = Self { bytes: [0; ROOM as usize], len: 0 };
        let mut len = ROOM;
        call(fd, io::ptr_of_mut(&mut address.bytes), io::ptr_of_mut(&mut len)).ok()?;
        address.len = (len as usize).min(address.bytes.len());
        Some(address)
    }

    fn family(&self) -> u16 {
        u16::from_le_bytes([self.bytes[0], self.bytes[1]])
    }

    /// Of the internet; `None`: another family, or not bound.
    fn of_internet(&self) -> Option<SocketAddr> {
        let port = u16::from_be_bytes([self.bytes[2], self.bytes[3]]);
        let address: SocketAddr = match self.family() {
            AF_INET => {
                let [.., a, b, c, d] = *self.bytes.first_chunk::<8>()?;
                (Ipv4Addr::new(a, b, c, d), port).into()
            }
            AF_INET6 => {
                let mut octets = [0; 16];
                octets.copy_from_slice(&self.bytes[8..24]);
                (Ipv6Addr::from(octets), port).into()
            }
            _ => return None,
        };
        (port != 0).then_some(address)
    }

    /// The name of a socket of `AF_UNIX`, with `@` for the NUL of an abstract one; empty: none.
    fn of_unix(&mut self) -> &[u8] {
        if self.family() != AF_UNIX || self.len <= 2 {
            return &[];
        }
        let name = &mut self.bytes[2..self.len];
        if name[0] == 0 {
            name[0] = b'@';
            return name;
        }
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
        &name[..end]
    }
}

/// Text at the beginning of a buffer; what has no room is left out.
#[derive(Debug)]
struct NameWriter<'b> {
    into: &'b mut [u8],
    len: usize,
}

impl NameWriter<'_> {
    fn push(&mut self, bytes: &[u8]) {
        let len = bytes.len().min(self.into.len() - self.len);
        self.into[self.len..self.len + len].copy_from_slice(&bytes[..len]);
        self.len += len;
    }
}

impl Write for NameWriter<'_> {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

/// Writes the addresses of a socket. Returns the length; `None`: it has none, or is no socket that
/// is known here.
pub(super) fn write(fd: i32, into: &mut [u8]) -> Option<usize> {
    let mut own = RawAddress::ask(fd, io::getsockname)?;
    let mut peer = RawAddress::ask(fd, io::getpeername);
    let mut name = NameWriter { into, len: 0 };
    if own.family() == AF_UNIX {
        let kind = match io::socket_option(fd, SO_TYPE) {
            Ok(1) => "UNIX-STREAM:[",
            Ok(2) => "UNIX-DGRAM:[",
            Ok(5) => "UNIX-SEQPACKET:[",
            _ => "UNIX:[",
        };
        let (own, peer) = (own.of_unix(), peer.as_mut().map_or(&[][..], RawAddress::of_unix));
        if own.is_empty() && peer.is_empty() {
            return None;
        }
        name.push(kind.as_bytes());
        name.push(own);
        if !peer.is_empty() {
            name.push(b"->");
            name.push(peer);
        }
    } else {
        let protocol = match io::socket_option(fd, SO_PROTOCOL) {
            Ok(IPPROTO_TCP) => "TCP",
            Ok(IPPROTO_UDP) => "UDP",
            _ => return None,
        };
        let version = if own.family() == AF_INET6 { "v6" } else { "" };
        let own = own.of_internet()?;
        let _ = write!(name, "{protocol}{version}:[{own}");
        if let Some(peer) = peer.and_then(|peer| peer.of_internet()) {
            let _ = write!(name, "->{peer}");
        }
    }
    name.push(b"]");
    Some(name.len)
}

/// Whether a socket is to get addresses yet: of TCP, neither connected nor listening.
pub(super) fn is_unsettled(fd: i32) -> bool {
    io::socket_option(fd, SO_PROTOCOL) == Ok(IPPROTO_TCP)
        && io::socket_option(fd, SO_ACCEPTCONN) == Ok(0)
        && RawAddress::ask(fd, io::getpeername).is_none()
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use super::*;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsRawFd;
    use std::string::{String, ToString};

    fn name_of(socket: &impl AsRawFd) -> Option<String> {
        let mut name = [0; 100];
        let len = write(socket.as_raw_fd(), &mut name)?;
        Some(String::from_utf8_lossy(&name[..len]).into_owned())
    }

    #[test]
    fn sockets_are_named_by_their_addresses() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap();
        assert_eq!(name_of(&listener), Some(std::format!("TCP:[{own}]")));
        let stream = TcpStream::connect(own).unwrap();
        let from = stream.local_addr().unwrap();
        assert_eq!(name_of(&stream), Some(std::format!("TCP:[{from}->{own}]")));
        assert!(!is_unsettled(listener.as_raw_fd()) && !is_unsettled(stream.as_raw_fd()));
        let udp = UdpSocket::bind("[::1]:0").unwrap();
        assert_eq!(name_of(&udp), Some(std::format!("UDPv6:[{}]", udp.local_addr().unwrap())));
        let (pair, _) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(name_of(&pair), None);
    }

    #[test]
    fn sockets_of_the_machine_are_named_by_paths() {
        use std::os::linux::net::SocketAddrExt;
        let text = "uringlet-name-".to_string() + &std::process::id().to_string();
        let address = std::os::unix::net::SocketAddr::from_abstract_name(&text).unwrap();
        let bound = std::os::unix::net::UnixListener::bind_addr(&address).unwrap();
        assert_eq!(name_of(&bound), Some(std::format!("UNIX-STREAM:[@{text}]")));
        let stream = std::os::unix::net::UnixStream::connect_addr(&address).unwrap();
        assert_eq!(name_of(&stream), Some(std::format!("UNIX-STREAM:[->@{text}]")));
    }

    #[test]
    fn a_name_without_room_is_cut() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut name = [0; 8];
        assert_eq!((write(listener.as_raw_fd(), &mut name), &name), (Some(8), b"TCP:[127"));
    }
}
