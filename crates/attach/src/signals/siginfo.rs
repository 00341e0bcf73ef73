//! The kernel's `siginfo_t`: the same layout on every 64-bit architecture.

use core::ffi::c_void;

use uringlet_sys::seccomp::SYS_SECCOMP;
use uringlet_sys::{Errno, signal};

const ERRNO: usize = 4;
const CODE: usize = 8;
const PID: usize = 16;
const VALUE: usize = 24;

/// `si_code` of a signal that a system call raises: as if the process had sent it.
pub(super) const SI_USER: i32 = 0;

/// What a signal handler was given as its second argument.
#[derive(Clone, Copy)]
pub(crate) struct SignalInfo(*mut u8);

impl SignalInfo {
    /// # Safety
    /// `info` is what the kernel passed to a handler that has not returned yet.
    pub(super) unsafe fn new(info: *mut c_void) -> Self {
        Self(info.cast())
    }

    pub(super) fn as_ptr(self) -> *mut c_void {
        self.0.cast()
    }

    /// Sends the signal again, to a thread of this process.
    pub(super) fn send_to(self, tid: u32, signal: u32) -> Result<(), Errno> {
        // SAFETY: `new` promised a live siginfo_t.
        unsafe { signal::queue_to_thread(tid, signal, self.0.addr()) }
    }

    fn int(self, offset: usize) -> i32 {
        // SAFETY: `new` promised a live siginfo_t, and this is an int of it.
        unsafe { self.0.add(offset).cast::<i32>().read() }
    }

    /// `si_code`: positive for a signal that the kernel raised.
    pub(super) fn code(self) -> i32 {
        self.int(CODE)
    }

    /// What a filter's trap carries, if this SIGSYS is one.
    pub(crate) fn trap_data(self) -> Option<u16> {
        (self.code() == SYS_SECCOMP).then_some((self.int(ERRNO).cast_unsigned() & 0xffff) as u16)
    }

    /// `si_value`, where the signal has one.
    pub(super) fn value(self) -> u64 {
        let half = |offset| u64::from(self.int(offset).cast_unsigned());
        half(VALUE) | half(VALUE + 4) << 32
    }

    /// `si_pid`, valid where the code is [`SI_USER`].
    pub(super) fn sender(self) -> i32 {
        self.int(PID)
    }
}
