//! Descriptors that belong to the engine.

use super::leaving::wait_until_left;
use super::moved::{self, FIRST_INTERNAL, duplicate};
use super::record_locks::close_or_linger;
use crate::fd_table;
use crate::io;
use crate::linux::general::F_DUPFD_CLOEXEC;
use syscalls::{Errno, Sysno, raw_syscall, syscall};

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
    /// Its number, or the first one if it has [moved](super::move_away).
    first: i32,
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
        Self::owning(fd, FileOwner::Engine)
    }

    /// A duplicate of a descriptor of the program.
    ///
    /// # Errors
    /// `EBADF`, `EMFILE`.
    pub fn dup_of(fd: i32) -> Result<Self, Errno> {
        duplicate(fd).map(|own| Self::owning(own, FileOwner::Program))
    }

    fn owning(number: i32, file: FileOwner) -> Self {
        let mut first = number;
        if moved::is_taken(number)
            && let Ok(other) = duplicate(number)
        {
            first = Self::owning(other, file).into_first();
            let _ = io::close(number);
        }
        // The thread that has just closed it may not have said so.
        wait_until_left(first);
        fd_table::set_internal(first);
        Self { first, file }
    }

    fn into_first(self) -> i32 {
        core::mem::ManuallyDrop::new(self).first
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
        moved::current(self.first)
    }

    /// Calls `use_it` with the number, which stays the descriptor's meanwhile: for a use without a
    /// lock that the thread which moves it takes as well.
    #[inline]
    pub fn with_number<R>(&self, use_it: impl FnOnce(i32) -> R) -> R {
        let _use = moved::NumberInUse::begin();
        use_it(self.number())
    }

    /// Writes 1 to the eventfd, or whatever the program registered as one.
    pub fn signal(&self) {
        self.with_number(write_one);
    }
}

fn write_one(fd: i32) {
    let one = 1_u64;
    // SAFETY: a live 8-byte value.
    unsafe { raw_syscall!(Sysno::write, fd, &raw const one, 8) };
}

impl Drop for EngineFd {
    fn drop(&mut self) {
        let leaving = moved::leave(self.first);
        match self.file {
            FileOwner::Program => close_or_linger(leaving),
            FileOwner::Engine => leaving.close(),
        }
    }
}
