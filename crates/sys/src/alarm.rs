//! An interrupt that is repeated until it is called off.
//!
//! A signal that comes just before its thread enters a blocking call interrupts nothing. So who wants a thread out of
//! such a call arms a timer of that thread's (timer_create(2), `SIGEV_THREAD_ID`), whose every tick is the signal again.
//! Once the alarm is dropped no tick is sent any more, and one that is on its way strikes before the drop is over if the
//! thread itself drops it: signals strike at the end of a system call.

use crate::thread::INTERRUPT_SIGNAL;
use syscalls::{Errno, Sysno, raw_syscall, syscall};

/// The first repetition comes after this long: by then nearly every thread is in its call.
const FIRST_NS: u64 = 1_000_000;
/// And one more each.
const INTERVAL_NS: u64 = 10_000_000;

/// A timer that interrupts a thread of this process again and again.
#[derive(Debug)]
pub struct Alarm(i32);

/// `struct sigevent`.
#[repr(C)]
struct Event {
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
        const CLOCK_MONOTONIC: usize = 1;
        const SIGEV_THREAD_ID: i32 = 4;
        let event = Event { value: 0, signal: INTERRUPT_SIGNAL as i32, notify: SIGEV_THREAD_ID, tid, rest: [0; 11] };
        let mut id = 0_i32;
        // SAFETY: the kernel reads a live 64-byte structure and writes 4 bytes.
        unsafe { syscall!(Sysno::timer_create, CLOCK_MONOTONIC, &raw const event, &raw mut id) }?;
        let alarm = Self(id);
        let spec = [0, INTERVAL_NS, 0, FIRST_NS];
        // SAFETY: the kernel reads 32 bytes.
        unsafe { syscall!(Sysno::timer_settime, id, 0, spec.as_ptr(), 0) }?;
        Ok(alarm)
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // SAFETY: our own timer; no addresses.
        unsafe { raw_syscall!(Sysno::timer_delete, self.0) };
    }
}

const _: () = assert!(size_of::<Event>() == 64);
