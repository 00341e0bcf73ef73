//! `IORING_OP_CONNECT`, and socket addresses copied from the program.

use super::nonblock::with_nonblock;
use super::socket::{ADDR_MAX, POLLOUT};
use crate::ops::issue::{Issue, IssueCx, PrepCx, unused};
use crate::ops::outcome::Outcome;
use alloc::boxed::Box;
use uringlet_abi::Sqe;
use uringlet_sys::io::{self, Res};
use uringlet_sys::{Errno, UserPtr, user};

/// A socket address, as long as the program said.
#[derive(Debug)]
pub(crate) struct SockAddr {
    bytes: Box<[u8]>,
}

impl SockAddr {
    /// Copies it from the program.
    ///
    /// # Errors
    /// `EINVAL` an impossible length; `EFAULT`.
    pub(super) fn read(addr: u64, len: i32) -> Result<Self, Errno> {
        let len = usize::try_from(len).ok().filter(|&len| len <= ADDR_MAX).ok_or(Errno::EINVAL)?;
        let mut bytes = [0; ADDR_MAX];
        user::read_slice(&mut bytes[..len], UserPtr::at(addr))?;
        Ok(Self { bytes: bytes[..len].into() })
    }

    pub(super) fn ptr(&self) -> UserPtr {
        io::ptr_of_slice(&self.bytes)
    }

    pub(super) fn len(&self) -> u32 {
        self.bytes.len() as u32
    }
}

/// A request to connect.
#[derive(Debug)]
pub(crate) struct Connect {
    addr: SockAddr,
    /// An earlier try has started the connection.
    is_in_progress: bool,
    /// The peer aborted an earlier try. One abort is retried.
    was_aborted: bool,
}

pub(crate) fn prep(sqe: &Sqe, _: &PrepCx) -> Result<Connect, Errno> {
    unused(&[sqe.len.into(), sqe.buf_index.into(), sqe.op_flags.into(), sqe.splice_fd_in as u64])?;
    let addr = SockAddr::read(sqe.addr, sqe.addr2() as i32)?;
    Ok(Connect { addr, is_in_progress: false, was_aborted: false })
}

impl Connect {
    pub(super) fn try_issue(&mut self, cx: &mut IssueCx<'_>) -> Issue {
        self.try_connect(cx.file.fd)
    }

    pub(super) fn try_connect(&mut self, fd: i32) -> Issue {
        match with_nonblock(fd, || self.connect(fd)) {
            Err(Errno::EINPROGRESS) => {
                self.is_in_progress = true;
                Issue::PollFirst(POLLOUT)
            }
            Err(Errno::EALREADY) if self.is_in_progress => Issue::PollFirst(POLLOUT),
            // The queue of a Unix listener is full: no poll event of the connecting socket says
            // when that ends.
            Err(Errno::EAGAIN) => Issue::Blocks,
            Err(Errno::ECONNABORTED) if !self.was_aborted => {
                self.was_aborted = true;
                Issue::PollFirst(POLLOUT)
            }
            other => self.answer(fd, other).into(),
        }
    }

    fn connect(&self, fd: i32) -> Res {
        io::connect(fd, self.addr.ptr(), self.addr.len())
    }

    /// On a second connect(2) some sockets only return that they are connected, or no longer
    /// connecting. Their SO_ERROR then has the result of the attempt.
    fn answer(&self, fd: i32, res: Res) -> Res {
        match res {
            Err(Errno::EISCONN | Errno::EBADFD) if self.is_in_progress => match io::socket_error(fd)? {
                0 => Ok(0),
                errno => Err(Errno::new(errno)),
            },
            other => other,
        }
    }

    /// Waits for the connection.
    pub(super) fn run(&mut self, fd: i32) -> Outcome {
        loop {
            match self.connect(fd) {
                Err(Errno::EINPROGRESS) => self.is_in_progress = true,
                Err(Errno::EALREADY) if self.is_in_progress => {}
                other => return self.answer(fd, other).into(),
            }
            if let Err(errno) = io::poll_wait(fd, POLLOUT) {
                return Outcome::err(errno);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_lengths_are_checked() {
        let bytes = [7_u8; ADDR_MAX];
        let at = io::ptr_of_slice(&bytes).addr() as u64;
        assert_eq!(SockAddr::read(at, -1).err(), Some(Errno::EINVAL));
        assert_eq!(SockAddr::read(at, 129).err(), Some(Errno::EINVAL));
        assert_eq!(SockAddr::read(8, 16).err(), Some(Errno::EFAULT));
        assert_eq!(SockAddr::read(8, 0).map(|a| a.len()), Ok(0));
        assert_eq!(SockAddr::read(at, 128).map(|a| a.len()), Ok(128));
    }
}
