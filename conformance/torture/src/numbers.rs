//! The descriptor numbers that this program knows. A number that is open and not among them belongs
//! to something below the program.

use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};

static KNOWN: Mutex<BTreeSet<RawFd>> = Mutex::new(BTreeSet::new());

fn with_known<T>(f: impl FnOnce(&mut BTreeSet<RawFd>) -> T) -> T {
    f(&mut KNOWN.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A number that the program uses, while this lives.
#[derive(Debug)]
pub(crate) struct Claim(RawFd);

impl Claim {
    pub(crate) fn of(number: RawFd) -> Self {
        with_known(|known| known.insert(number));
        Self(number)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        with_known(|known| known.remove(&self.0));
    }
}

/// A descriptor whose number is known.
#[derive(Debug)]
pub(crate) struct Fd {
    // Fields drop in this order: once the number is closed it may be another thread's.
    _number: Claim,
    fd: OwnedFd,
}

impl Fd {
    /// Takes what a system call returned.
    pub(crate) fn of(result: RawFd) -> std::io::Result<Self> {
        if result < 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: a descriptor that a system call has just made, and that nobody else owns.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(result) }, _number: Claim::of(result) })
    }

    /// As [`of`](Self::of), of what libc's `syscall` returned.
    pub(crate) fn of_syscall(result: libc::c_long) -> std::io::Result<Self> {
        Self::of(RawFd::try_from(result).unwrap_or(-1))
    }

    pub(crate) fn number(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// The number, open and no longer known.
    pub(crate) fn release(self) -> RawFd {
        self.fd.into_raw_fd()
    }

    /// Another number for the same open file.
    pub(crate) fn duplicate(&self) -> std::io::Result<Self> {
        // SAFETY: no addresses.
        Self::of(unsafe { libc::fcntl(self.number(), libc::F_DUPFD_CLOEXEC, 0) })
    }
}

/// A pipe: its reading and its writing end.
pub(crate) fn pipe() -> std::io::Result<(Fd, Fd)> {
    let mut ends = [-1; 2];
    // SAFETY: pipe2 writes two numbers.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } < 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok((Fd::of(ends[0])?, Fd::of(ends[1])?))
}

/// fork(2), while no other thread holds the lock of this module: it would never be free in the
/// child.
pub(crate) fn fork() -> libc::pid_t {
    // SAFETY: the caller's child calls only what glibc makes safe after fork, and never returns.
    with_known(|_| unsafe { libc::fork() })
}

/// Open numbers that the program does not know, and the first free one from `from` on. To be used
/// while no other thread opens or closes anything.
pub(crate) fn foreign(from: RawFd) -> Vec<RawFd> {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let open: BTreeSet<RawFd> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    // The directory itself is closed again by now.
    let is_open = |number: &RawFd| {
        // SAFETY: no addresses.
        unsafe { libc::fcntl(*number, libc::F_GETFD) >= 0 }
    };
    let mut foreign: Vec<RawFd> = with_known(|known| open.iter().filter(|n| **n > 2 && !known.contains(n)).copied().collect());
    foreign.retain(is_open);
    foreign.extend((from..).find(|number| !is_open(number)));
    foreign
}
