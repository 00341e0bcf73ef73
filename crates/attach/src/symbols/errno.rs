//! `errno`, which libc owns.

use core::ffi::c_int;
use core::sync::atomic::{AtomicUsize, Ordering};

use uringlet_sys::Errno;

use crate::arch::weak_address;
use crate::convert::int;

static ERRNO_LOCATION: AtomicUsize = AtomicUsize::new(0);

/// Looks up the function that returns the address of `errno`.
pub(super) fn resolve() {
    ERRNO_LOCATION.store(weak_address!("__errno_location"), Ordering::Relaxed);
}

/// The address of the calling thread's `errno`.
fn location() -> Option<*mut c_int> {
    let address = match ERRNO_LOCATION.load(Ordering::Relaxed) {
        0 => weak_address!("__errno_location"),
        address => address,
    };
    // SAFETY: the signature it has in glibc and musl; 0 becomes None.
    unsafe {
        let function = core::mem::transmute::<usize, Option<unsafe extern "C" fn() -> *mut c_int>>(address)?;
        Some(function())
    }
}

/// The calling thread's `errno`; `None` in a process without libc.
pub(super) fn last_errno() -> Option<Errno> {
    // SAFETY: libc returns the address of the calling thread's errno.
    location().map(|location| Errno::new(unsafe { location.read() }))
}

/// Sets `errno` from the kernel's `-errno` and returns -1: the end of every failed call.
pub(crate) extern "C" fn set_errno(result: isize) -> isize {
    if let Some(location) = location() {
        // SAFETY: as above.
        unsafe { location.write(int(-result)) };
    }
    -1
}

/// The kernel's result as libc's.
pub(super) fn to_libc_result(result: isize) -> isize {
    if (-4095..0).contains(&result) { set_errno(result) } else { result }
}
