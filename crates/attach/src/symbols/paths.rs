//! Lookups of paths that exist only in a kernel with ublk_drv: `/dev/ublk-control`, `/dev/ublkcN`,
//! `/sys/class/ublk-char`. If the kernel does not find one, the call is repeated for what stands in
//! for it: `/dev/null`, and a folder of the broker's.

use core::ffi::{CStr, c_char, c_int};
use uringlet_sys::Errno;
use uringlet_ublk::remote::BROKER_FILES;

use super::errno::last_errno;
use super::next::{
    ACCESS, EUIDACCESS, FACCESSAT, FSTATAT, FSTATAT64, FXSTATAT, FXSTATAT64, LSTAT, LSTAT64, LXSTAT, LXSTAT64, NextFunction, OPENDIR, STAT,
    STAT64, STATX, XSTAT, XSTAT64,
};
use super::open::begins_with;
use crate::convert::{Register, int};
use crate::entry::on_engine_stack;
use crate::in_use;

/// Paths with a stand-in begin with one of these.
const PREFIXES: [&[u8]; 3] = [b"/dev/ublk", b"/sys/class/ublk-char", b"/sys/module/ublk_drv"];

/// libc's result, or that for the stand-in. `at`: the argument that is the path. `failure`: the
/// result that comes with an errno.
fn call_or_stand_in(next: &NextFunction, at: usize, failure: isize, mut args: [usize; 6]) -> isize {
    let result = next.call(args);
    let has_failed = if failure == 0 { result == 0 } else { int(result) == -1 };
    if !has_failed {
        return result;
    }
    let path = args[at] as *const c_char;
    if last_errno() != Some(Errno::ENOENT) || !begins_with(path, &PREFIXES) {
        return result;
    }
    in_use::begin();
    // SAFETY: the kernel has read the path to its NUL.
    let path = unsafe { CStr::from_ptr(path) };
    let Some(stand_in) = on_engine_stack(|| BROKER_FILES.remap_path(path.to_bytes())) else { return result };
    args[at] = stand_in.as_ptr().reg();
    next.call(args)
}

macro_rules! path_functions {
    ($($at:literal: $($name:ident => $next:ident),*;)*) => {
        $($(
            #[cfg_attr(not(test), unsafe(no_mangle))]
            unsafe extern "C" fn $name(a: usize, b: usize, c: usize, d: usize, e: usize) -> c_int {
                int(call_or_stand_in(&$next, $at, -1, [a, b, c, d, e, 0]))
            }
        )*)*
    };
}

path_functions! {
    0: stat => STAT, stat64 => STAT64, lstat => LSTAT, lstat64 => LSTAT64, access => ACCESS, euidaccess => EUIDACCESS;
    1: statx => STATX, fstatat => FSTATAT, fstatat64 => FSTATAT64, faccessat => FACCESSAT;
    1: __xstat => XSTAT, __xstat64 => XSTAT64, __lxstat => LXSTAT, __lxstat64 => LXSTAT64;
    2: __fxstatat => FXSTATAT, __fxstatat64 => FXSTATAT64;
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn opendir(path: *const c_char) -> *mut core::ffi::c_void {
    call_or_stand_in(&OPENDIR, 0, 0, [path.reg(), 0, 0, 0, 0, 0]) as *mut core::ffi::c_void
}
