//! Descriptors that wake a thread which waits for events: eventfds, timers and epoll sets of the
//! engine's own.

use super::engine_fd::EngineFd;
use super::epoll_event::{EpollEvent, EpollOp};
use crate::clock::timespec;
use crate::io::Res;
use crate::linux::general::{
    __kernel_itimerspec, CLOCK_MONOTONIC, CLOCK_REALTIME, EFD_CLOEXEC, EFD_NONBLOCK, EPOLL_CLOEXEC, TFD_CLOEXEC, TFD_NONBLOCK,
    TFD_TIMER_ABSTIME, TFD_TIMER_CANCEL_ON_SET,
};
use crate::process::monotonic_ns;
use crate::signal::SIGSET_BYTES;
use crate::user::UserPtr;
use crate::valgrind;
use syscalls::{Errno, Sysno, syscall};

/// A system call's fresh descriptor.
fn adopt(fd: usize) -> EngineFd {
    EngineFd::adopt(fd as i32)
}

/// An eventfd that wakes the threads that poll it.
#[derive(Debug)]
pub struct EventFd(EngineFd);

impl EventFd {
    /// A new one, non-blocking.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOMEM`.
    pub fn new() -> Result<Self, Errno> {
        // SAFETY: no addresses.
        let fd = unsafe { syscall!(Sysno::eventfd2, 0, EFD_NONBLOCK | EFD_CLOEXEC) }?;
        Ok(Self(adopt(fd)))
    }

    /// Makes it readable.
    pub fn signal(&self) {
        self.0.signal();
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
    /// `EMFILE`, `ENFILE`, `ENOMEM`; `EPERM` under system call filters that do not know it.
    pub fn new() -> Result<Self, Errno> {
        // SAFETY: no addresses.
        let fd = unsafe { syscall!(Sysno::timerfd_create, CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC) }?;
        Ok(Self(adopt(fd)))
    }

    /// Starts it: it expires once, in `ns` nanoseconds. Returns whether it runs.
    #[must_use]
    pub fn start(&self, ns: u64) -> bool {
        let spec = __kernel_itimerspec { it_interval: timespec(0), it_value: timespec(ns) };
        // SAFETY: the kernel reads a live structure.
        unsafe { syscall!(Sysno::timerfd_settime, self.0.number(), 0, &raw const spec, 0) }.is_ok()
    }

    /// The number.
    #[must_use]
    pub fn number(&self) -> i32 {
        self.0.number()
    }
}

/// Becomes readable, once more each time, when the wall clock is set or a suspend ends.
#[derive(Debug)]
pub struct ClockStep(EngineFd);

impl ClockStep {
    /// A timer that a step cancels, and that expires in some centuries.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOMEM`; `EPERM` under system call filters that do not know it;
    /// `EINVAL` before Linux 3.0.
    pub fn new() -> Result<Self, Errno> {
        // SAFETY: no addresses.
        let fd = unsafe { syscall!(Sysno::timerfd_create, CLOCK_REALTIME, TFD_NONBLOCK | TFD_CLOEXEC) }?;
        let step = Self(adopt(fd));
        let spec = __kernel_itimerspec { it_interval: timespec(0), it_value: timespec(u64::MAX) };
        let flags = TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET;
        // SAFETY: the kernel reads a live structure.
        unsafe { syscall!(Sysno::timerfd_settime, step.number(), flags, &raw const spec, 0) }?;
        Ok(step)
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
        let fd = unsafe { syscall!(Sysno::epoll_create1, EPOLL_CLOEXEC) }?;
        Ok(Self(adopt(fd)))
    }

    /// The number.
    #[must_use]
    pub fn number(&self) -> i32 {
        self.0.number()
    }

    /// Adds, changes or removes a file. `events` are `EPOLL*`; each event carries `data`.
    ///
    /// # Errors
    /// `EPERM` the file cannot be polled; `EEXIST`, `ENOENT`, `EBADF`, `ENOSPC`.
    pub fn ctl(&self, op: EpollOp, fd: i32, events: u32, data: u64) -> Result<(), Errno> {
        let event = EpollEvent { events, data };
        // SAFETY: the kernel reads a live structure.
        unsafe { syscall!(Sysno::epoll_ctl, self.0.number(), op as u32, fd, &raw const event) }.map(drop)
    }

    /// Waits until `deadline_ns` (`CLOCK_MONOTONIC`; 0: not at all; `u64::MAX`: without limit) with
    /// the signal mask at `sigmask` (null: the thread's). Returns how many events were stored.
    ///
    /// # Errors
    /// `EINTR`; `EFAULT` for a bad `sigmask`.
    pub fn wait(&self, events: &mut [EpollEvent], deadline_ns: u64, sigmask: UserPtr) -> Res {
        if deadline_ns == 0 {
            return self.wait_ms(events, 0, sigmask);
        }
        if deadline_ns == u64::MAX {
            return self.wait_ms(events, -1, sigmask);
        }
        let left = deadline_ns.saturating_sub(monotonic_ns());
        let ms = i32::try_from(left.div_ceil(1_000_000)).unwrap_or(i32::MAX);
        // A valgrind that does not know the call says so on standard error.
        if valgrind::is_running() {
            return self.wait_ms(events, ms, sigmask);
        }
        let ts = timespec(left);
        let (fd, n) = (self.0.number(), events.len());
        // SAFETY: the kernel writes at most `n` events and reads a live timespec; the mask is the
        // program's and checked.
        let r = unsafe { syscall!(Sysno::epoll_pwait2, fd, events.as_mut_ptr(), n, &raw const ts, sigmask.addr(), SIGSET_BYTES) };
        match r {
            // Before Linux 5.11, and under system call filters that do not know it: milliseconds,
            // rounded up.
            Err(Errno::ENOSYS | Errno::EPERM) => self.wait_ms(events, ms, sigmask),
            other => other,
        }
    }

    /// epoll_pwait(2): `timeout_ms` -1 waits without limit.
    #[inline(always)]
    fn wait_ms(&self, events: &mut [EpollEvent], timeout_ms: i32, sigmask: UserPtr) -> Res {
        let (fd, n) = (self.0.number(), events.len());
        // SAFETY: the kernel writes at most `n` events; the mask is the program's and checked.
        unsafe { syscall!(Sysno::epoll_pwait, fd, events.as_mut_ptr(), n, timeout_ms, sigmask.addr(), SIGSET_BYTES) }
    }
}
