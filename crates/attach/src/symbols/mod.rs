//! The functions of libc that the program finds here first.
//!
//! Where libc's function is a cancellation point or does more than the system call, libc's is called, found by `dlsym(RTLD_NEXT)`.

mod credentials;
mod descriptors;
mod limits;
mod next;
mod open;
mod paths;
pub(crate) mod polling;
mod signals;

pub(crate) use next::{errno_location, resolve_all, weak_address};

use core::ffi::c_int;

/// Sets `errno` from the kernel's `-errno` and returns -1: the end of every failed call.
pub(crate) unsafe extern "C" fn fail(result: isize) -> isize {
    if let Some(location) = errno_location() {
        // SAFETY: libc returns the address of the calling thread's errno.
        unsafe { location().write(-result as c_int) };
    }
    -1
}

/// The kernel's result as libc's.
fn returned(result: isize) -> isize {
    if (-4095..0).contains(&result) {
        // SAFETY: an errno value.
        unsafe { fail(result) }
    } else {
        result
    }
}
