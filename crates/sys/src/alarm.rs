//! An interrupt that repeats until it is dropped.
//!
//! A signal that arrives just before its thread enters a blocking call interrupts nothing. So a
//! timer of the thread (timer_create(2), `SIGEV_THREAD_ID`) sends the signal again at each tick. No
//! tick is sent once the alarm is dropped. If the thread itself drops it, a pending signal arrives
//! before the drop ends: signals are delivered at the end of a system call.

use crate::clock::timespec;
use crate::linux::general::{__kernel_itimerspec, CLOCK_MONOTONIC, SIGEV_THREAD_ID, sigevent};
use crate::thread::{INTERRUPT_MARK, INTERRUPT_SIGNAL};
use syscalls::{Errno, Sysno, raw_syscall, syscall};

/// Time to the first tick, ns: by then nearly every thread is in its call.
const FIRST_NS: u64 = 1_000_000;
/// Time between ticks, ns.
const INTERVAL_NS: u64 = 10_000_000;

/// A timer that interrupts a thread of this process repeatedly.
#[derive(Debug)]
pub struct Alarm(i32);

/// `struct sigevent` for `SIGEV_THREAD_ID`, without pointers in its union.
#[repr(C)]
struct ThreadSigevent {
    value: u64,
    signal: i32,
    notify: i32,
    tid: u32,
    rest: [u32; 11],
}

impl Alarm {
    /// Interrupts a thread from now on.
    ///
    /// # Errors
    /// `EAGAIN` (`RLIMIT_SIGPENDING`), `EINVAL` there is no such thread.
    pub fn start(tid: u32) -> Result<Self, Errno> {
        let event = ThreadSigevent {
            value: INTERRUPT_MARK,
            signal: INTERRUPT_SIGNAL.cast_signed(),
            notify: SIGEV_THREAD_ID.cast_signed(),
            tid,
            rest: [0; 11],
        };
        let mut id = 0_i32;
        // SAFETY: the kernel reads a live structure of its own size and writes 4 bytes.
        unsafe { syscall!(Sysno::timer_create, CLOCK_MONOTONIC, &raw const event, &raw mut id) }?;
        let alarm = Self(id);
        let spec = __kernel_itimerspec { it_interval: timespec(INTERVAL_NS), it_value: timespec(FIRST_NS) };
        // SAFETY: the kernel reads a live structure.
        unsafe { syscall!(Sysno::timer_settime, id, 0, &raw const spec, 0) }?;
        Ok(alarm)
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // SAFETY: our own timer; no addresses.
        unsafe { raw_syscall!(Sysno::timer_delete, self.0) };
    }
}

const _: () = assert!(size_of::<ThreadSigevent>() == size_of::<sigevent>());
