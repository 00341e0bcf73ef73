//! The `open` family: a path that the kernel does not find may be the engine's
//! (`/dev/ublk-control`), or a folder (`/sys/class/ublk-char`).

use core::ffi::{c_char, c_int};

use super::errno::{last_errno, to_libc_result};
use super::next::{NextFunction, OPEN, OPEN_2, OPEN64, OPEN64_2, OPENAT, OPENAT_2, OPENAT64, OPENAT64_2};
use crate::convert::{Register, int};
use crate::entry::on_engine_stack;
use crate::virtual_paths;

/// libc's open; if that finds nothing, the engine's, or a folder that stands in. `at`: the argument
/// that is the path.
fn open_or_engine(next: &NextFunction, at: usize, flags: c_int, mut args: [usize; 6]) -> c_int {
    let result = next.call_int(args);
    if result >= 0 {
        return result;
    }
    let Some(errno) = last_errno() else { return result };
    let (path, flags) = (args[at], flags.cast_unsigned());
    if virtual_paths::may_be_opened(path, errno) {
        return on_engine_stack(|| virtual_paths::open(path, flags, errno)).map_or(result, |result| int(to_libc_result(result)));
    }
    if !virtual_paths::may_be_listed(path, flags, errno) {
        return result;
    }
    let Some(stand_in) = on_engine_stack(|| virtual_paths::stand_in(path)) else { return result };
    args[at] = stand_in.as_ptr().reg();
    next.call_int(args)
}

// Variadic in C: the mode is in the next register, whether it was passed or not.
macro_rules! open {
    ($($name:ident => $next:ident;)*) => {
        $(
            #[cfg_attr(not(test), unsafe(no_mangle))]
            unsafe extern "C" fn $name(path: *const c_char, flags: c_int, mode: usize) -> c_int {
                open_or_engine(&$next, 0, flags, [path.reg(), flags.reg(), mode, 0, 0, 0])
            }
        )*
    };
}

macro_rules! openat {
    ($($name:ident => $next:ident;)*) => {
        $(
            #[cfg_attr(not(test), unsafe(no_mangle))]
            unsafe extern "C" fn $name(dir: c_int, path: *const c_char, flags: c_int, mode: usize) -> c_int {
                open_or_engine(&$next, 1, flags, [dir.reg(), path.reg(), flags.reg(), mode, 0, 0])
            }
        )*
    };
}

open! {
    open => OPEN;
    open64 => OPEN64;
    __open_2 => OPEN_2;
    __open64_2 => OPEN64_2;
}

openat! {
    openat => OPENAT;
    openat64 => OPENAT64;
    __openat_2 => OPENAT_2;
    __openat64_2 => OPENAT64_2;
}
