//! sigaction(2) and the older functions: libc sets the handler, `signals` puts ours before it.

use core::ffi::{c_int, c_void};

use super::next::{BSD_SIGNAL, NextFunction, SIGACTION, SIGNAL, SIGSET, SSIGNAL, SYSV_SIGNAL, UNDERSCORE_SYSV_SIGNAL};
use crate::convert::{Register, low_i32};
use crate::signals::{HANDLER_FLAGS, action_changed, our_handler, program_handler};

/// libc's `struct sigaction`, glibc's and musl's.
#[repr(C)]
struct LibcSigaction {
    handler: usize,
    mask: [u64; 16],
    flags: c_int,
    restorer: usize,
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn sigaction(signal: c_int, new: *const c_void, old: *mut c_void) -> c_int {
    let before = program_handler(signal.cast_unsigned());
    let result = SIGACTION.call_int([signal.reg(), new.reg(), old.reg(), 0, 0, 0]);
    if result != 0 {
        return result;
    }
    if !old.is_null() {
        // SAFETY: libc has just filled it.
        let old = unsafe { &mut *old.cast::<LibcSigaction>() };
        if let Some(before) = before.filter(|_| old.handler == our_handler()) {
            old.handler = before.address;
            old.flags = old.flags & !libc_flags(HANDLER_FLAGS) | libc_flags(before.flags & HANDLER_FLAGS);
            if before.address == 0 {
                // Ours replaces the default.
                (old.flags, old.restorer) = (libc_flags(before.flags), 0);
            }
        }
    }
    if !new.is_null() {
        action_changed(signal.cast_unsigned());
    }
    result
}

/// The kernel's `SA_*` as libc's structure has them.
fn libc_flags(flags: u64) -> c_int {
    low_i32(flags.reg())
}

/// For the functions that return the former handler.
fn set_handler(next: &NextFunction, signal: c_int, handler: usize) -> usize {
    let before = program_handler(signal.cast_unsigned());
    let old = next.call([signal.reg(), handler, 0, 0, 0, 0]).cast_unsigned();
    action_changed(signal.cast_unsigned());
    match before {
        Some(before) if old == our_handler() => before.address,
        _ => old,
    }
}

macro_rules! handler_functions {
    ($($name:ident = $next:ident;)*) => {
        $(#[cfg_attr(not(test), unsafe(no_mangle))]
        unsafe extern "C" fn $name(signal: c_int, handler: usize) -> usize {
            set_handler(&$next, signal, handler)
        })*
    };
}

handler_functions! {
    signal = SIGNAL;
    bsd_signal = BSD_SIGNAL;
    sysv_signal = SYSV_SIGNAL;
    __sysv_signal = UNDERSCORE_SYSV_SIGNAL;
    ssignal = SSIGNAL;
    sigset = SIGSET;
}
