//! Message headers of SENDMSG and RECVMSG.
//!
//! The first try passes the program's own header to the kernel. A request that waits, or is done in
//! parts, works on a copy; the fields that a receive sets in the copy are written back to the
//! program's header.

use super::connect::SockAddr;
use super::socket::{ADDR_MAX, MAX_IOVECS};
use crate::ops::FilledBytes;
use crate::ops::iovecs;
use alloc::boxed::Box;
use uringlet_abi::register::Iovec;
use uringlet_sys::io::{self, Msghdr, Res};
use uringlet_sys::{Errno, UserPtr, user};

/// The direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MsgDirection {
    Send,
    Receive,
}

/// Offsets in the program's header of the fields that a receive writes.
const NAMELEN: usize = 8;
const CONTROLLEN: usize = 40;

/// A message header of the program, and the copy once there is one.
#[derive(Debug)]
pub(super) struct UserMsghdr {
    program: UserPtr,
    copy: Option<Box<ImportedMsghdr>>,
}

#[derive(Debug)]
struct ImportedMsghdr {
    header: Msghdr,
    /// The bytes left to transfer.
    iovecs: Box<[Iovec]>,
    /// The destination. (The buffer for a received address is the program's memory.)
    name: Option<SockAddr>,
}

impl UserMsghdr {
    pub(super) fn at(addr: u64) -> Self {
        Self { program: UserPtr::at(addr), copy: None }
    }

    /// Copies the header and what it points to, except the data and the ancillary data.
    ///
    /// # Errors
    /// `EFAULT`; `EMSGSIZE` too many iovecs; `EINVAL` an impossible address length.
    pub(super) fn import_args(&mut self, direction: MsgDirection) -> Result<(), Errno> {
        if self.copy.is_some() {
            return Ok(());
        }
        let header: Msghdr = user::read(self.program)?;
        if header.iovlen > MAX_IOVECS {
            return Err(Errno::EMSGSIZE);
        }
        if (header.namelen as i32) < 0 {
            return Err(Errno::EINVAL);
        }
        let name = if direction == MsgDirection::Send && header.name != 0 && header.namelen != 0 {
            Some(SockAddr::read(header.name, header.namelen.min(ADDR_MAX as u32) as i32)?)
        } else {
            None
        };
        let iovecs = iovecs::read(header.iov, header.iovlen as usize)?;
        self.copy = Some(Box::new(ImportedMsghdr { header, iovecs, name }));
        Ok(())
    }

    /// The bytes left to transfer, of a copy.
    pub(super) fn iovecs(&self) -> &[Iovec] {
        self.copy.as_ref().map_or(&[], |copy| &copy.iovecs)
    }

    /// Where the bytes of a whole transfer are.
    pub(super) fn filled(&self) -> FilledBytes {
        self.copy.as_ref().map_or(FilledBytes::Message(self.program), |copy| FilledBytes::of(&copy.iovecs))
    }

    /// Whether there is ancillary data, or room for it. False without a copy.
    pub(super) fn has_control(&self) -> bool {
        self.copy.as_ref().is_some_and(|copy| copy.header.controllen != 0)
    }

    /// Sends what is left.
    pub(super) fn send(&self, fd: i32, flags: u32) -> Res {
        let Some(copy) = &self.copy else { return io::sendmsg(fd, self.program, flags) };
        let mut header = copy.with_iovecs();
        if let Some(name) = &copy.name {
            header.name = name.ptr().addr() as u64;
            header.namelen = name.len();
        }
        io::sendmsg(fd, io::ptr_of(&header), flags)
    }

    /// Receives into what is left: the number of bytes, and the message's flags if there is a copy
    /// of the header.
    pub(super) fn receive(&self, fd: i32, flags: u32) -> Result<(usize, u32), Errno> {
        let Some(copy) = &self.copy else { return io::recvmsg(fd, self.program, flags).map(|n| (n, 0)) };
        let mut header = copy.with_iovecs();
        let n = io::recvmsg(fd, io::ptr_of_mut(&mut header), flags)?;
        if header.name != 0 {
            user::write(self.program.add(NAMELEN), &header.namelen)?;
        }
        let control = [header.controllen as u32, (header.controllen >> 32) as u32, header.flags];
        user::write_slice(self.program.add(CONTROLLEN), &control)?;
        Ok((n, header.flags))
    }

    /// Replaces the program's iovecs by one buffer.
    pub(super) fn use_buffer(&mut self, addr: u64, len: u32) {
        if let Some(copy) = &mut self.copy {
            copy.iovecs = Box::new([Iovec { base: addr, len: len.into() }]);
        }
    }

    /// `n` more bytes are done: they and the ancillary data are not sent again.
    pub(super) fn advance(&mut self, n: usize) {
        if let Some(copy) = &mut self.copy {
            iovecs::skip(&mut copy.iovecs, n);
            copy.header.control = 0;
            copy.header.controllen = 0;
        }
    }

    /// Bytes left to transfer. Without a copy call it only after a successful transfer: the kernel
    /// has just read the same header.
    pub(super) fn left(&self) -> usize {
        if let Some(copy) = &self.copy {
            return iovecs::bytes(&copy.iovecs);
        }
        let header: Msghdr = user::read_mapped(self.program);
        let iovec = |i: u64| user::read_mapped::<Iovec>(UserPtr::at(header.iov).add(i as usize * size_of::<Iovec>()));
        (0..header.iovlen.min(MAX_IOVECS)).map(|i| iovec(i).len as usize).fold(0, usize::saturating_add)
    }
}

impl ImportedMsghdr {
    fn with_iovecs(&self) -> Msghdr {
        let iov = io::ptr_of_slice(&self.iovecs).addr() as u64;
        Msghdr { iov, iovlen: self.iovecs.len() as u64, flags: 0, ..self.header }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header_of(iovecs: &[Iovec]) -> Msghdr {
        Msghdr { iov: io::ptr_of_slice(iovecs).addr() as u64, iovlen: iovecs.len() as u64, ..Msghdr::default() }
    }

    fn message(header: &Msghdr) -> UserMsghdr {
        UserMsghdr::at(io::ptr_of(header).addr() as u64)
    }

    #[test]
    fn imported_headers_do_not_see_later_changes() {
        let mut iovecs = [Iovec { base: 1, len: 10 }, Iovec { base: 2, len: 20 }];
        let mut header = header_of(&iovecs);
        let mut copied = message(&header);
        assert_eq!(copied.left(), 30);
        copied.import_args(MsgDirection::Send).unwrap();
        iovecs[0].len = 1000;
        header.iovlen = 1;
        assert_eq!(copied.left(), 30);
        assert_eq!((header.iovlen, iovecs[0].len), (1, 1000));
    }

    #[test]
    fn bytes_done_are_not_sent_again() {
        let iovecs = [Iovec { base: 1, len: 10 }, Iovec { base: 2, len: 20 }];
        let header = Msghdr { control: 8, controllen: 16, ..header_of(&iovecs) };
        let mut message = message(&header);
        message.import_args(MsgDirection::Send).unwrap();
        assert!(message.has_control());
        message.advance(15);
        assert_eq!(message.left(), 15);
        assert!(!message.has_control());
    }

    #[test]
    fn impossible_headers_are_refused() {
        let long = Msghdr { iovlen: 1025, ..Msghdr::default() };
        assert_eq!(message(&long).import_args(MsgDirection::Receive), Err(Errno::EMSGSIZE));
        let negative = Msghdr { namelen: u32::MAX, ..Msghdr::default() };
        assert_eq!(message(&negative).import_args(MsgDirection::Send), Err(Errno::EINVAL));
        assert_eq!(UserMsghdr::at(8).import_args(MsgDirection::Send), Err(Errno::EFAULT));
    }
}
