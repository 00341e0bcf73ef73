//! The engine's own file descriptors: few, with high numbers, close-on-exec, and marked in `fd_table`.

use crate::fd_table::{self, FdOwner};
use crate::io;
use crate::linux::general::{AT_FDCWD, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, F_DUPFD_CLOEXEC};
use syscalls::{Errno, Sysno, raw_syscall, syscall};

pub use crate::event::{Epoll, EventFd, TimerFd, signal_eventfd};

/// Internal numbers start here if the limits allow: programs expect the lowest free numbers for their own descriptors.
const FIRST_INTERNAL: i32 = 900;

/// Grows the kernel's table of this process' descriptors for internal numbers, while there is one thread.
///
/// With several threads growing it takes an RCU grace period, some ten milliseconds.
pub fn grow_fd_table() {
    // SAFETY: no addresses; the new descriptor is ours and not used.
    unsafe {
        let lowest = raw_syscall!(Sysno::eventfd2, 0, io::O_CLOEXEC);
        let high = raw_syscall!(Sysno::fcntl, lowest, F_DUPFD_CLOEXEC, FIRST_INTERNAL);
        raw_syscall!(Sysno::close, lowest);
        raw_syscall!(Sysno::close, high);
    }
}

/// A descriptor that belongs to the engine. Closed on drop.
#[derive(Debug, PartialEq, Eq)]
pub struct EngineFd(i32);

impl EngineFd {
    /// Takes over a fresh descriptor and moves it to a high number.
    pub(crate) fn adopt(low: i32) -> Self {
        // SAFETY: no addresses; the fd is ours.
        let high = unsafe { syscall!(Sysno::fcntl, low, F_DUPFD_CLOEXEC, FIRST_INTERNAL) };
        let fd = match high {
            Ok(fd) => {
                // SAFETY: `low` was ours alone and is not used again.
                unsafe { raw_syscall!(Sysno::close, low) };
                fd as i32
            }
            Err(_) => low,
        };
        fd_table::set_owner(fd, FdOwner::Engine);
        Self(fd)
    }

    /// A duplicate of a descriptor of the program.
    ///
    /// # Errors
    /// `EBADF`, `EMFILE`.
    pub fn dup_of(fd: i32) -> Result<Self, Errno> {
        // SAFETY: no addresses.
        let high = unsafe { syscall!(Sysno::fcntl, fd, F_DUPFD_CLOEXEC, FIRST_INTERNAL) };
        let fd = match high {
            // The limit is below FIRST_INTERNAL: take any number.
            // SAFETY: no addresses.
            Err(Errno::EINVAL) => unsafe { syscall!(Sysno::fcntl, fd, F_DUPFD_CLOEXEC, 0) }?,
            other => other?,
        } as i32;
        fd_table::set_owner(fd, FdOwner::Engine);
        Ok(Self(fd))
    }

    /// A descriptor of a process: readable once that has ended.
    ///
    /// # Errors
    /// `ESRCH` there is none; `EINVAL`, `ENOENT` a thread that leads no process; `EMFILE`, `ENOSYS`.
    pub fn pidfd(pid: i32) -> Result<Self, Errno> {
        // SAFETY: no addresses.
        unsafe { syscall!(Sysno::pidfd_open, pid, 0) }.map(|fd| Self::adopt(fd as i32))
    }

    /// The number.
    #[inline]
    #[must_use]
    pub fn number(&self) -> i32 {
        self.0
    }
}

impl Drop for EngineFd {
    fn drop(&mut self) {
        fd_table::set_owner(self.0, FdOwner::Program);
        // SAFETY: the descriptor is ours alone.
        unsafe { raw_syscall!(Sysno::close, self.0) };
    }
}

pub use crate::linux::general::epoll_event as EpollEvent;
pub use crate::linux::general::{EPOLLERR, EPOLLET, EPOLLHUP, EPOLLIN, EPOLLONESHOT};

/// No event: what arrays for events start with.
pub const NO_EVENT: EpollEvent = EpollEvent { events: 0, data: 0 };

/// What to do with a file in an epoll set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum EpollOp {
    /// `EPOLL_CTL_ADD`
    Add = EPOLL_CTL_ADD,
    /// `EPOLL_CTL_DEL`
    Del = EPOLL_CTL_DEL,
    /// `EPOLL_CTL_MOD`
    Mod = EPOLL_CTL_MOD,
}

/// A ring's descriptor, as the program polls, dups and closes it: a FIFO. The program has the end to read from, the
/// engine the end to write to.
///
/// A byte in the FIFO makes the program's end readable. When the program's last number for it is closed, in any process,
/// the FIFO has no reader any more, and poll reports an error at the writing end, at once or later.
#[derive(Debug)]
pub struct RingFd {
    writer: EngineFd,
    /// A duplicate of the program's end, to drain the FIFO with. Only while the ring is polled, since it is a reader too.
    reader: Option<EngineFd>,
}

impl RingFd {
    /// Makes the FIFO and the program's descriptor for it (close-on-exec, the lowest free number).
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`.
    pub fn open() -> Result<(i32, Self), Errno> {
        let mut pair = [0_i32; 2];
        // SAFETY: the kernel writes 8 bytes to `pair`.
        unsafe { syscall!(Sysno::pipe2, pair.as_mut_ptr(), io::O_CLOEXEC | io::O_NONBLOCK) }?;
        let [app, writer] = pair;
        let writer = EngineFd::adopt(writer);
        Self::make_writable(app);
        Ok((app, Self { writer, reader: None }))
    }

    /// A ring polls as writable, too. That takes a FIFO opened for both, which only /proc can give; without it the
    /// program's end polls as readable only.
    fn make_writable(app: i32) {
        let path = ProcPath::of(app);
        let flags = io::O_RDWR | io::O_NONBLOCK | io::O_CLOEXEC;
        if let Ok(both) = io::openat(AT_FDCWD, io::ptr_of_slice(path.bytes()), flags, 0) {
            // SAFETY: no addresses; both numbers are ours until the ring's setup returns.
            unsafe {
                raw_syscall!(Sysno::dup3, both, app, io::O_CLOEXEC);
                raw_syscall!(Sysno::close, both);
            }
        }
    }

    /// The writing end's number: it has an error when [orphaned](Self::is_orphaned).
    #[must_use]
    pub fn writer(&self) -> i32 {
        self.writer.number()
    }

    /// `st_ino` on pipefs: how a duplicate is recognised.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn ino(&self) -> Result<u64, Errno> {
        io::fstat(self.writer.number()).map(|stat| stat.ino)
    }

    /// Whether the program's last number is closed, in all processes.
    #[must_use]
    pub fn is_orphaned(&self) -> bool {
        self.reader.is_none() && io::poll_now(self.writer.number(), 0).is_ok_and(|events| events & EPOLLERR != 0)
    }

    /// Keeps readiness from now on: `app`, a number of the program's, is polled.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn track_readiness(&mut self, app: i32) -> Result<(), Errno> {
        if self.reader.is_none() {
            self.reader = Some(EngineFd::dup_of(app)?);
        }
        Ok(())
    }

    /// Stops keeping readiness: the program has no number left to poll.
    pub fn untrack_readiness(&mut self) {
        self.reader = None;
    }

    /// Makes the program's descriptor readable. Writing when it already is gives edge-triggered pollers their edge.
    pub fn set_readable(&self) {
        // Without a reader a write raises SIGPIPE.
        if self.reader.is_some() {
            let byte = 0_u8;
            // SAFETY: one live byte; a full FIFO answers EAGAIN, and is readable.
            unsafe { raw_syscall!(Sysno::write, self.writer.number(), &raw const byte, 1) };
        }
    }

    /// Makes the program's descriptor not readable.
    pub fn clear_readable(&self) {
        let Some(reader) = &self.reader else { return };
        let mut sink = [0_u8; 4096];
        // SAFETY: the kernel writes at most 4096 bytes to `sink`.
        while unsafe { raw_syscall!(Sysno::read, reader.number(), sink.as_mut_ptr(), sink.len()) } == sink.len() {}
    }
}

/// `/proc/self/fd/N`, NUL-terminated.
pub(crate) struct ProcPath([u8; 32], usize);

impl ProcPath {
    pub(crate) fn of(fd: i32) -> Self {
        const PREFIX: &[u8] = b"/proc/self/fd/";
        let mut path = Self([0; 32], PREFIX.len());
        path.0[..PREFIX.len()].copy_from_slice(PREFIX);
        let mut digits = [0_u8; 10];
        let mut n = fd as u32;
        let mut first = digits.len();
        loop {
            first -= 1;
            digits[first] = b'0' + (n % 10) as u8;
            n /= 10;
            if n == 0 {
                break;
            }
        }
        let count = digits.len() - first;
        path.0[path.1..path.1 + count].copy_from_slice(&digits[first..]);
        path.1 += count + 1;
        path
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0[..self.1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_close_of_a_rings_number_orphans_it() {
        let (app, mut fd) = RingFd::open().unwrap();
        fd.track_readiness(app).unwrap();
        fd.set_readable();
        assert_eq!(io::poll_now(app, EPOLLIN), Ok(EPOLLIN));
        fd.clear_readable();
        assert_eq!(io::poll_now(app, EPOLLIN), Ok(0));
        let other = EngineFd::dup_of(app).unwrap();
        io::close(app).unwrap();
        fd.untrack_readiness();
        assert!(!fd.is_orphaned());
        drop(other);
        assert!(fd.is_orphaned());
        // No SIGPIPE.
        fd.set_readable();
    }
}
