//! `_dl_find_object` of glibc 2.35 and later: where unwinders ask which object an address lies in.
//! The trampolines of rewritten sites lie in none.
//!
//! Differs: an older glibc and musl have no such function. There an exception or a cancellation
//! that leaves a signal handler in a trampoline ends the process.

use core::ffi::{c_int, c_void};

use super::next::DL_FIND_OBJECT;
use crate::convert::Register;
use crate::rewrite::trampolines_at;

/// libc's `struct dl_find_object`.
#[repr(C)]
struct FoundObject {
    flags: u64,
    map_start: usize,
    map_end: usize,
    link_map: *mut c_void,
    eh_frame: usize,
    reserved: [u64; 7],
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn _dl_find_object(address: usize, result: *mut FoundObject) -> c_int {
    let find = |address: usize| DL_FIND_OBJECT.call_int([address, result.cast::<c_void>().reg(), 0, 0, 0, 0]);
    let Some(code) = trampolines_at(address) else { return find(address) };
    // Trampolines count as this object's.
    let found = find(_dl_find_object as *const () as usize);
    if found == 0 {
        // SAFETY: libc has just filled the caller's structure.
        let result = unsafe { &mut *result };
        (result.map_start, result.map_end, result.eh_frame) = (code.start, code.start + code.len, code.tables);
    }
    found
}
