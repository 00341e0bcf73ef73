//! What wakes a thread that waits for events: eventfds and epoll sets of the engine's own.

use crate::fd::{EngineFd, EpollEvent, EpollOp};
use crate::io::{self, Res};
use crate::user::UserPtr;
use syscalls::{Errno, Sysno, raw_syscall, syscall};

/// Writes 8 bytes to an eventfd of the program's (or anything else it registered as one).
pub fn signal_eventfd(fd: i32) {
    let one = 1_u64;
    // SAFETY: a live 8-byte value.
    unsafe { raw_syscall!(Sysno::write, fd, &raw const one, 8) };
}

/// An eventfd that wakes whoever polls it.
#[derive(Debug)]
pub struct EventFd(EngineFd);

impl EventFd {
    /// A new one, non-blocking.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOMEM`.
    pub fn new() -> Result<Self, Errno> {
        const EFD_NONBLOCK_CLOEXEC: u32 = io::O_NONBLOCK | io::O_CLOEXEC;
        // SAFETY: no addresses.
        let fd = unsafe { syscall!(Sysno::eventfd2, 0, EFD_NONBLOCK_CLOEXEC) }?;
        Ok(Self(EngineFd::adopt(fd as i32)))
    }

    /// Wakes.
    pub fn signal(&self) {
        signal_eventfd(self.0.number());
    }

    /// The number.
    #[must_use]
    pub fn number(&self) -> i32 {
        self.0.number()
    }
}

/// A timer that is readable once it has expired.
#[derive(Debug)]
pub struct TimerFd(EngineFd);

impl TimerFd {
    /// A new one (`CLOCK_MONOTONIC`), not running.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOMEM`; `EPERM` under filters that do not know it.
    pub fn new() -> Result<Self, Errno> {
        const CLOCK_MONOTONIC: usize = 1;
        // SAFETY: no addresses.
        let fd = unsafe { syscall!(Sysno::timerfd_create, CLOCK_MONOTONIC, io::O_NONBLOCK | io::O_CLOEXEC) }?;
        Ok(Self(EngineFd::adopt(fd as i32)))
    }

    /// Lets it expire once, `ns` from now. Whether it runs.
    #[must_use]
    pub fn start(&self, ns: u64) -> bool {
        // struct itimerspec: no interval, then the time.
        let spec = [0, 0, (ns / 1_000_000_000) as i64, (ns % 1_000_000_000) as i64];
        // SAFETY: the kernel reads 32 bytes of a live array.
        unsafe { syscall!(Sysno::timerfd_settime, self.0.number(), 0, spec.as_ptr(), 0) }.is_ok()
    }

    /// The number.
    #[must_use]
    pub fn number(&self) -> i32 {
        self.0.number()
    }
}

/// An epoll set of the engine.
#[derive(Debug)]
pub struct Epoll(EngineFd);

impl Epoll {
    /// An empty set.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOMEM`.
    pub fn new() -> Result<Self, Errno> {
        // SAFETY: no addresses.
        let fd = unsafe { syscall!(Sysno::epoll_create1, io::O_CLOEXEC) }?;
        Ok(Self(EngineFd::adopt(fd as i32)))
    }

    /// The number.
    #[must_use]
    pub fn number(&self) -> i32 {
        self.0.number()
    }

    /// Adds, changes or removes a file.
    ///
    /// # Errors
    /// `EPERM` the file cannot be polled; `EEXIST`, `ENOENT`, `EBADF`, `ENOSPC`.
    pub fn ctl(&self, op: EpollOp, fd: i32, events: u32, data: u64) -> Result<(), Errno> {
        let event = EpollEvent { events, data };
        // SAFETY: the kernel reads 12 bytes of a live structure.
        unsafe { syscall!(Sysno::epoll_ctl, self.0.number(), op as u32, fd, &raw const event) }.map(drop)
    }

    /// Waits until `deadline_ns` (`CLOCK_MONOTONIC`; 0: not at all; `u64::MAX`: for ever) with the signal mask at
    /// `sigmask` (null: the thread's). Returns how many events were stored.
    ///
    /// # Errors
    /// `EINTR`; `EFAULT` for a bad `sigmask`.
    pub fn wait(&self, events: &mut [EpollEvent], deadline_ns: u64, sigmask: UserPtr) -> Res {
        let n = events.len();
        if deadline_ns == 0 || deadline_ns == u64::MAX {
            let timeout = if deadline_ns == 0 { 0_i32 } else { -1 };
            // SAFETY: the kernel writes at most `n` events; the mask is the program's and checked.
            return unsafe { syscall!(Sysno::epoll_pwait, self.0.number(), events.as_mut_ptr(), n, timeout, sigmask.addr(), 8) };
        }
        let left = deadline_ns.saturating_sub(crate::process::monotonic_ns()).min(i64::MAX as u64);
        let ts = [(left / 1_000_000_000) as i64, (left % 1_000_000_000) as i64];
        // SAFETY: as above; the kernel reads 16 bytes of `ts`.
        let r = unsafe { syscall!(Sysno::epoll_pwait2, self.0.number(), events.as_mut_ptr(), n, ts.as_ptr(), sigmask.addr(), 8) };
        match r {
            // Before Linux 5.11, and under filters that do not know it: milliseconds, rounded up.
            Err(Errno::ENOSYS | Errno::EPERM) => {
                let ms = left.div_ceil(1_000_000).min(i32::MAX as u64) as i32;
                // SAFETY: as above.
                unsafe { syscall!(Sysno::epoll_pwait, self.0.number(), events.as_mut_ptr(), n, ms, sigmask.addr(), 8) }
            }
            other => other,
        }
    }
}
