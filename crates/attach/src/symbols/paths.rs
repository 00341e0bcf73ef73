//! Lookups of paths that have a stand-in (`virtual_paths`).

use core::ffi::{c_char, c_int};

use super::errno::last_errno;
use super::next::{
    ACCESS, EUIDACCESS, FACCESSAT, FSTATAT, FSTATAT64, FXSTATAT, FXSTATAT64, LSTAT, LSTAT64, LXSTAT, LXSTAT64, NextFunction, OPENDIR,
    SCANDIR, SCANDIR64, SCANDIRAT, SCANDIRAT64, STAT, STAT64, STATX, XSTAT, XSTAT64,
};
use crate::convert::{Register, int};
use crate::entry::on_engine_stack;
use crate::virtual_paths;

/// libc's result, or that for the stand-in. `at`: the argument that is the path. `failure`: the
/// result that comes with an errno.
fn call_or_stand_in(next: &NextFunction, at: usize, failure: isize, mut args: [usize; 6]) -> isize {
    let result = next.call(args);
    let has_failed = if failure == 0 { result == 0 } else { int(result) == -1 };
    if !has_failed {
        return result;
    }
    let path = args[at];
    if !last_errno().is_some_and(|errno| virtual_paths::may_have_stand_in(path, errno)) {
        return result;
    }
    let Some(stand_in) = on_engine_stack(|| virtual_paths::stand_in(path)) else { return result };
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
    // glibc's own opens its directory without the symbol `opendir`.
    0: scandir => SCANDIR, scandir64 => SCANDIR64;
    1: scandirat => SCANDIRAT, scandirat64 => SCANDIRAT64;
    2: __fxstatat => FXSTATAT, __fxstatat64 => FXSTATAT64;
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn opendir(path: *const c_char) -> *mut core::ffi::c_void {
    call_or_stand_in(&OPENDIR, 0, 0, [path.reg(), 0, 0, 0, 0, 0]) as *mut core::ffi::c_void
}
