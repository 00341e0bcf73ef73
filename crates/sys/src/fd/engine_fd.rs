//! Descriptors that belong to the engine.

use super::record_locks::close_keeping_locks;
use crate::fd_table::{self, FdOwner};
use crate::io;
use crate::linux::general::F_DUPFD_CLOEXEC;
use syscalls::{Errno, Sysno, raw_syscall, syscall};

/// Internal numbers start here if the limits allow: programs expect the lowest free numbers for
/// their own descriptors.
const FIRST_INTERNAL: u32 = 900;

/// Grows the kernel's table of this process' descriptors for internal numbers, while there is one
/// thread.
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
pub struct EngineFd {
    number: i32,
    file: FileOwner,
}

/// The owner of the file behind a descriptor of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileOwner {
    Engine,
    /// The program may have record locks on it.
    Program,
}

impl EngineFd {
    /// Takes over a fresh descriptor and moves it to a high number.
    pub(crate) fn adopt(low: i32) -> Self {
        let high = io::fcntl(low, F_DUPFD_CLOEXEC, FIRST_INTERNAL);
        let fd = match high {
            Ok(fd) => {
                let _ = io::close(low);
                fd as i32
            }
            Err(_) => low,
        };
        fd_table::set_owner(fd, FdOwner::Engine);
        Self { number: fd, file: FileOwner::Engine }
    }

    /// A duplicate of a descriptor of the program.
    ///
    /// # Errors
    /// `EBADF`, `EMFILE`.
    pub fn dup_of(fd: i32) -> Result<Self, Errno> {
        let high = io::fcntl(fd, F_DUPFD_CLOEXEC, FIRST_INTERNAL);
        let fd = match high {
            // The limit is below FIRST_INTERNAL: take any number.
            Err(Errno::EINVAL) => io::dup_cloexec(fd)?,
            other => other?,
        } as i32;
        fd_table::set_owner(fd, FdOwner::Engine);
        Ok(Self { number: fd, file: FileOwner::Program })
    }

    /// A descriptor of a process: readable once that has ended.
    ///
    /// # Errors
    /// `ESRCH` there is none; `EINVAL`, `ENOENT` a thread that leads no process; `EMFILE`,
    /// `ENOSYS`.
    pub fn pidfd(pid: i32) -> Result<Self, Errno> {
        // SAFETY: no addresses.
        unsafe { syscall!(Sysno::pidfd_open, pid, 0) }.map(|fd| Self::adopt(fd as i32))
    }

    /// The number.
    #[inline]
    #[must_use]
    pub fn number(&self) -> i32 {
        self.number
    }
}

impl Drop for EngineFd {
    fn drop(&mut self) {
        if self.file == FileOwner::Program {
            return close_keeping_locks(self.number);
        }
        fd_table::set_owner(self.number, FdOwner::Program);
        let _ = io::close(self.number);
    }
}
