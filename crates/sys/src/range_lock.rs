//! Locks on ranges of a file that belong to an open file description (`F_OFD_SETLK`, fcntl(2)):
//! they end with its last descriptor, however its process ends.

use syscalls::{Errno, Sysno, syscall};

use crate::linux::general::{F_OFD_GETLK, F_OFD_SETLK, F_RDLCK, F_UNLCK, F_WRLCK, flock};

/// What a lock excludes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Exclusive locks of others. The file must be open for reading.
    Shared,
    /// All locks of others. The file must be open for writing.
    Exclusive,
}

impl LockKind {
    const fn number(self) -> i16 {
        match self {
            Self::Shared => lock_type(F_RDLCK),
            Self::Exclusive => lock_type(F_WRLCK),
        }
    }
}

const UNLOCKED: i16 = lock_type(F_UNLCK);

/// As `struct flock` has it.
const fn lock_type(lock: u32) -> i16 {
    let [low, high, ..] = lock.to_le_bytes();
    i16::from_le_bytes([low, high])
}

/// Calls fcntl(2); returns the type of lock that it has stored.
fn fcntl(fd: i32, op: u32, kind: i16, start: u64, len: u64) -> Result<i16, Errno> {
    // l_whence 0 is SEEK_SET.
    let mut range = flock { l_type: kind, l_whence: 0, l_start: start.cast_signed(), l_len: len.cast_signed(), l_pid: 0 };
    // SAFETY: the kernel reads and writes a live structure.
    unsafe { syscall!(Sysno::fcntl, fd, op, &raw mut range) }?;
    Ok(range.l_type)
}

/// Locks `len` bytes from `start` on, without waiting.
///
/// # Errors
/// `EAGAIN`, `EACCES`: another open file description has a lock that excludes it; those of
/// fcntl(2).
pub fn lock(fd: i32, kind: LockKind, start: u64, len: u64) -> Result<(), Errno> {
    fcntl(fd, F_OFD_SETLK, kind.number(), start, len).map(drop)
}

/// Ends the locks on these bytes.
///
/// # Errors
/// Those of fcntl(2).
pub fn unlock(fd: i32, start: u64, len: u64) -> Result<(), Errno> {
    fcntl(fd, F_OFD_SETLK, UNLOCKED, start, len).map(drop)
}

/// Whether this lock would be refused: another open file description has one that excludes it.
///
/// # Errors
/// Those of fcntl(2).
pub fn is_excluded(fd: i32, kind: LockKind, start: u64, len: u64) -> Result<bool, Errno> {
    fcntl(fd, F_OFD_GETLK, kind.number(), start, len).map(|found| found != UNLOCKED)
}
