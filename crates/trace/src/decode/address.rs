//! Addresses of sockets.

use std::net::{Ipv4Addr, Ipv6Addr};

const AF_UNIX: u16 = 1;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// A `struct sockaddr` as text.
pub(super) fn text(bytes: &[u8]) -> String {
    let half = |at: usize| bytes.get(at..at + 2).map(|pair| [pair[0], pair[1]]);
    let Some(family) = half(0).map(u16::from_le_bytes) else { return "{}".to_owned() };
    let port = half(2).map_or(0, u16::from_be_bytes);
    match family {
        AF_INET if bytes.len() >= 8 => {
            let address = Ipv4Addr::new(bytes[4], bytes[5], bytes[6], bytes[7]);
            format!("{{AF_INET, {address}:{port}}}")
        }
        AF_INET6 if bytes.len() >= 24 => {
            let mut octets = [0; 16];
            octets.copy_from_slice(&bytes[8..24]);
            format!("{{AF_INET6, [{}]:{port}}}", Ipv6Addr::from(octets))
        }
        AF_UNIX => {
            let name = &bytes[2..];
            let is_abstract = name.first() == Some(&0) && name.len() > 1;
            let name = if is_abstract { &name[1..] } else { name };
            let end = if is_abstract { name.len() } else { name.iter().position(|&byte| byte == 0).unwrap_or(name.len()) };
            format!("{{AF_UNIX, {}\"{}\"}}", if is_abstract { "@" } else { "" }, String::from_utf8_lossy(&name[..end]))
        }
        family => format!("{{family {family}, {} bytes}}", bytes.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_by_family() {
        assert_eq!(text(&[2, 0, 0x1f, 0x90, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]), "{AF_INET, 127.0.0.1:8080}");
        let mut six = [0; 28];
        (six[0], six[3], six[23]) = (10, 80, 1);
        assert_eq!(text(&six), "{AF_INET6, [::1]:80}");
        assert_eq!(text(b"\x01\0/run/x\0junk"), "{AF_UNIX, \"/run/x\"}");
        assert_eq!(text(b"\x01\0\0name"), "{AF_UNIX, @\"name\"}");
        assert_eq!([text(b"\x02\0"), text(b"")], ["{family 2, 2 bytes}", "{}"]);
    }
}
