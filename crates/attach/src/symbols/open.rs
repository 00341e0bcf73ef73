//! The `open` family: a path that the kernel does not find may be the engine's
//! (`/dev/ublk-control`).

use core::ffi::{c_char, c_int};

use uringlet::ENGINE;
use uringlet_sys::{Errno, UserPtr};

use super::errno::{last_errno, to_libc_result};
use super::next::{NextFunction, OPEN, OPEN_2, OPEN64, OPEN64_2, OPENAT, OPENAT_2, OPENAT64, OPENAT64_2};
use crate::convert::{Register, int};
use crate::entry::on_engine_stack;
use crate::in_use;

/// Where a program's strings may be: above the page that no program maps, below the kernel.
const USER_ADDRESSES: core::ops::Range<usize> = 0x1_0000..1 << 47;
/// The engine's paths begin with one of these.
const PREFIXES: [&[u8]; 2] = [b"/dev/ublk", b"/dev/uringlet/"];

/// Whether the string at `path` begins with one of these. It was the path of a call that the kernel
/// has just failed.
///
/// Mostly the kernel has read the path, to its NUL. A seccomp filter may have failed the call
/// before that. So an address that no string can have is not read; others are the program's
/// strings, by what libc's function asks for. No system call may find that out: the filter may kill
/// for it.
pub(super) fn begins_with(path: *const c_char, prefixes: &[&[u8]]) -> bool {
    // SAFETY: see above; no byte behind a difference or the NUL is read.
    let begins = |prefix: &&[u8]| prefix.iter().enumerate().all(|(i, &byte)| unsafe { path.add(i).cast::<u8>().read() } == byte);
    USER_ADDRESSES.contains(&path.reg()) && prefixes.iter().any(begins)
}

/// libc's open; if that finds nothing, the engine's.
fn open_or_engine(next: &NextFunction, path: *const c_char, flags: c_int, args: [usize; 6]) -> c_int {
    let result = next.call_int(args);
    if result >= 0 {
        return result;
    }
    let Some(errno) = last_errno() else { return result };
    let may_be_ours = matches!(errno, Errno::ENOENT | Errno::ENXIO | Errno::ENODEV | Errno::ENOTDIR | Errno::EACCES | Errno::EPERM);
    if !may_be_ours || !begins_with(path, &PREFIXES) {
        return result;
    }
    in_use::begin();
    match on_engine_stack(|| ENGINE.open(UserPtr::new(path.reg()), flags.cast_unsigned(), errno)) {
        Some(result) => int(to_libc_result(result)),
        None => result,
    }
}

// Variadic in C: the mode is in the next register, whether it was passed or not.
macro_rules! open {
    ($($name:ident => $next:ident;)*) => {
        $(
            #[cfg_attr(not(test), unsafe(no_mangle))]
            unsafe extern "C" fn $name(path: *const c_char, flags: c_int, mode: usize) -> c_int {
                open_or_engine(&$next, path, flags, [path.reg(), flags.reg(), mode, 0, 0, 0])
            }
        )*
    };
}

macro_rules! openat {
    ($($name:ident => $next:ident;)*) => {
        $(
            #[cfg_attr(not(test), unsafe(no_mangle))]
            unsafe extern "C" fn $name(dir: c_int, path: *const c_char, flags: c_int, mode: usize) -> c_int {
                open_or_engine(&$next, path, flags, [dir.reg(), path.reg(), flags.reg(), mode, 0, 0])
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
