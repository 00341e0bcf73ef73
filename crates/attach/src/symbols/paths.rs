//! Questions about paths that only a kernel with ublk_drv has something behind: `/dev/ublk-control`, `/dev/ublkcN`, `/sys/class/ublk-char`. Where the
//! kernel finds nothing, it is asked again for what stands in for them: `/dev/null`, and a folder of the broker's.

use core::ffi::{CStr, c_char, c_int};
use uringlet_sys::Errno;
use uringlet_ublk::remote::BROKER_FILES;

use super::errno_location;
use super::next::{
    ACCESS, EUIDACCESS, FACCESSAT, FSTATAT, FSTATAT64, FXSTATAT, FXSTATAT64, LSTAT, LSTAT64, LXSTAT, LXSTAT64, NextFunction, OPENDIR, STAT,
    STAT64, STATX, XSTAT, XSTAT64,
};
use super::open::begins_with;
use crate::entry::on_engine_stack;

/// What stands in for others begins with one of these.
const PREFIXES: [&[u8]; 3] = [b"/dev/ublk", b"/sys/class/ublk-char", b"/sys/module/ublk_drv"];

/// libc's answer, or that for another path. `at`: the argument that is the path. `nothing`: the answer that comes with an errno.
fn answered(next: &NextFunction, at: usize, nothing: isize, mut args: [usize; 6]) -> isize {
    let answer = next.call(args);
    let has_failed = if nothing == 0 { answer == 0 } else { answer as c_int == -1 };
    let Some(location) = errno_location().filter(|_| has_failed) else { return answer };
    let path = args[at] as *const c_char;
    // SAFETY: libc returns the address of the calling thread's errno.
    if unsafe { location().read() } != Errno::ENOENT.into_raw() || !begins_with(path, &PREFIXES) {
        return answer;
    }
    // SAFETY: who looks a path up has read it to its NUL.
    let path = unsafe { CStr::from_ptr(path) };
    let Some(other) = on_engine_stack(|| BROKER_FILES.remap_path(path.to_bytes())) else { return answer };
    args[at] = other.as_ptr() as usize;
    next.call(args)
}

macro_rules! asked {
    ($($at:literal: $($name:ident => $next:ident),*;)*) => {
        $($(
            #[cfg_attr(not(test), unsafe(no_mangle))]
            unsafe extern "C" fn $name(a: usize, b: usize, c: usize, d: usize, e: usize) -> c_int {
                answered(&$next, $at, -1, [a, b, c, d, e, 0]) as c_int
            }
        )*)*
    };
}

asked! {
    0: stat => STAT, stat64 => STAT64, lstat => LSTAT, lstat64 => LSTAT64, access => ACCESS, euidaccess => EUIDACCESS;
    1: statx => STATX, fstatat => FSTATAT, fstatat64 => FSTATAT64, faccessat => FACCESSAT;
    1: __xstat => XSTAT, __xstat64 => XSTAT64, __lxstat => LXSTAT, __lxstat64 => LXSTAT64;
    2: __fxstatat => FXSTATAT, __fxstatat64 => FXSTATAT64;
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn opendir(path: *const c_char) -> *mut core::ffi::c_void {
    answered(&OPENDIR, 0, 0, [path as usize, 0, 0, 0, 0, 0]) as *mut core::ffi::c_void
}
