//! Functions of libc that close or replace descriptor numbers: before they do, requests that use
//! the number take hold of its file, and what is known of the number is forgotten.
//!
//! As in [`hooks`](crate::hooks), functions of ours precede libc's in the slots through which
//! objects call them.

use core::ffi::CStr;
use core::sync::atomic::Ordering::Relaxed;

use uringlet_core::ENGINE;
use uringlet_sys::fd_table;

use crate::arch::address_of_weak;
use crate::identity;
use crate::syscall::int;
use crate::weak::{self, Arg, call_int};

/// The engine's result as libc's.
fn as_libc_result(result: isize) -> i32 {
    if result >= 0 {
        return int(result);
    }
    set_errno(int(-result));
    -1
}

fn set_errno(value: i32) {
    if let Some(errno) = weak::errno() {
        errno.store(value, Relaxed);
    }
}

extern "C" fn close(fd: i32) -> i32 {
    ENGINE.close(fd).map_or_else(|| call_int(address_of_weak!("close"), [number(fd), 0, 0, 0, 0]), as_libc_result)
}

extern "C" fn close_range(first: u32, last: u32, flags: u32) -> i32 {
    match ENGINE.close_range(first, last, flags) {
        Some(result) => as_libc_result(result),
        None => identity::close_range(first as usize, last as usize, flags as usize, 0, 0),
    }
}

extern "C" fn closefrom(low: i32) {
    if ENGINE.close_range(low.max(0).cast_unsigned(), u32::MAX, 0).is_none_or(|result| result < 0) {
        call_int(address_of_weak!("closefrom"), [number(low), 0, 0, 0, 0]);
    }
}

/// As the register holds it: the upper half is not looked at.
fn number(fd: i32) -> Arg {
    fd.cast_unsigned() as Arg
}

fn replace(old: i32, new: i32, call: impl FnOnce() -> i32) -> i32 {
    if let Err(errno) = ENGINE.before_dup(old, new) {
        return as_libc_result(-(errno.into_raw() as isize));
    }
    let result = call();
    if result >= 0 && fd_table::is_ours(old) {
        ENGINE.duped(old, result);
    }
    result
}

extern "C" fn dup2(old: i32, new: i32) -> i32 {
    replace(old, new, || call_int(address_of_weak!("dup2"), [number(old), number(new), 0, 0, 0]))
}

extern "C" fn dup3(old: i32, new: i32, flags: i32) -> i32 {
    replace(old, new, || call_int(address_of_weak!("dup3"), [number(old), number(new), number(flags), 0, 0]))
}

/// Before libc closes the number of a stream or of a directory, which the function at `number_of`
/// returns.
fn before_close_of(number_of: usize, stream: Arg) {
    if stream == 0 {
        return;
    }
    let errno = weak::errno();
    let before = errno.map(|errno| errno.load(Relaxed));
    let fd = call_int(number_of, [stream, 0, 0, 0, 0]);
    if fd >= 0 {
        return ENGINE.before_replace(fd);
    }
    // A stream in memory: that it has no number is no error of the program's.
    before.into_iter().for_each(set_errno);
}

extern "C" fn mq_close(queue: i32) -> i32 {
    ENGINE.before_replace(queue);
    call_int(address_of_weak!("mq_close"), [number(queue), 0, 0, 0, 0])
}

macro_rules! closers {
    (
        close { $($close:ident = $symbol:literal by $number_of:literal;)* }
        reopen { $($reopen:ident = $reopen_symbol:literal;)* }
        other { $($other:ident = $other_symbol:literal;)* }
    ) => {
        $(extern "C" fn $close(stream: Arg) -> i32 {
            before_close_of(address_of_weak!($number_of), stream);
            call_int(address_of_weak!($symbol), [stream, 0, 0, 0, 0])
        })*

        $(extern "C" fn $reopen(path: Arg, mode: Arg, stream: Arg) -> Arg {
            before_close_of(address_of_weak!("fileno"), stream);
            weak::call_pointer(address_of_weak!($reopen_symbol), [path, mode, stream])
        })*

        /// The function of ours that precedes libc's of this name.
        pub(crate) fn preceding(name: &CStr) -> Option<usize> {
            match name.to_bytes() {
                $(known if known == $symbol.as_bytes() => Some($close as *const () as usize),)*
                $(known if known == $reopen_symbol.as_bytes() => Some($reopen as *const () as usize),)*
                $(known if known == $other_symbol.as_bytes() => Some($other as *const () as usize),)*
                _ => None,
            }
        }
    };
}

closers! {
    close {
        fclose = "fclose" by "fileno";
        pclose = "pclose" by "fileno";
        endmntent = "endmntent" by "fileno";
        closedir = "closedir" by "dirfd";
    }
    reopen {
        freopen = "freopen";
        freopen64 = "freopen64";
    }
    other {
        close = "close";
        close_range = "close_range";
        closefrom = "closefrom";
        dup2 = "dup2";
        dup3 = "dup3";
        mq_close = "mq_close";
    }
}
