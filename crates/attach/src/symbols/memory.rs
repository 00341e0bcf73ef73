//! mprotect(2) and pkey_mprotect(2): memory that becomes code (`trap`).

use core::ffi::c_int;

use uringlet_sys::linux::general::PROT_EXEC;

use super::next::{MPROTECT, NextFunction, PKEY_MPROTECT};
use crate::convert::Register;
use crate::trap;

fn protect(next: &NextFunction, start: usize, len: usize, prot: c_int, key: c_int) -> c_int {
    let result = next.call_int([start, len, prot.reg(), key.reg(), 0, 0]);
    if result == 0 {
        note_code(start, len, prot);
    }
    result
}

/// After memory has got a protection.
pub(super) fn note_code(start: usize, len: usize, prot: c_int) {
    if prot.cast_unsigned() & PROT_EXEC != 0 && trap::covers_new_code() {
        trap::note_code(start, len);
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn mprotect(start: usize, len: usize, prot: c_int) -> c_int {
    protect(&MPROTECT, start, len, prot, 0)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn pkey_mprotect(start: usize, len: usize, prot: c_int, key: c_int) -> c_int {
    protect(&PKEY_MPROTECT, start, len, prot, key)
}
