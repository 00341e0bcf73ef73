//! The kernel's `siginfo_t`: the same layout on every 64-bit architecture.

use core::ffi::c_void;

const CODE: usize = 8;
const PID: usize = 16;
const VALUE: usize = 24;

/// `si_code` of a signal that a system call raises: as if the process had sent it.
pub(super) const SI_USER: i32 = 0;

/// What a signal handler was given as its second argument.
#[derive(Clone, Copy)]
pub(super) struct SignalInfo(*mut u8);

impl SignalInfo {
    /// # Safety
    /// `info` is what the kernel passed to a handler that has not returned yet.
    pub(super) unsafe fn new(info: *mut c_void) -> Self {
        Self(info.cast())
    }

    pub(super) fn as_ptr(self) -> *mut c_void {
        self.0.cast()
    }

    pub(super) fn addr(self) -> usize {
        self.0.addr()
    }

    fn int(self, offset: usize) -> i32 {
        // SAFETY: `new` promised a live siginfo_t, and this is an int of it.
        unsafe { self.0.add(offset).cast::<i32>().read() }
    }

    /// `si_code`: positive for a signal that the kernel raised.
    pub(super) fn code(self) -> i32 {
        self.int(CODE)
    }

    /// `si_value`, where the signal has one.
    pub(super) fn value(self) -> u64 {
        // SAFETY: as above; the value is 8 bytes.
        unsafe { self.0.add(VALUE).cast::<u64>().read() }
    }

    /// `si_pid`, valid where the code is [`SI_USER`].
    pub(super) fn sender(self) -> i32 {
        self.int(PID)
    }
}
