//! Functions of libc that close or replace a number by calls inside libc, which are not seen.

use core::ffi::{c_char, c_int, c_void};

use uringlet_core::ENGINE;

use super::errno::{last_errno, set_errno};
use super::next::{CLOSEDIR, DIRFD, ENDMNTENT, FCLOSE, FILENO, FREOPEN, FREOPEN64, MQ_CLOSE, NextFunction, PCLOSE};
use crate::convert::Register;
use crate::entry::on_engine_stack;
use crate::in_use::is_in_use;

/// Before libc closes or replaces the number.
fn before_close(fd: c_int) {
    if is_in_use() {
        on_engine_stack(|| ENGINE.before_replace(fd));
    }
}

/// Before libc closes the number of a stream or a directory; `number_of` returns it.
fn before_close_of(number_of: &NextFunction, stream: *mut c_void) {
    if !is_in_use() || stream.is_null() || number_of.function().is_none() {
        return;
    }
    let errno = last_errno();
    match (number_of.call_int([stream.reg(), 0, 0, 0, 0, 0]), errno) {
        (fd @ 0.., _) => before_close(fd),
        // A stream in memory: that it has no number is no error of the program's.
        (_, Some(errno)) => drop(set_errno(-(errno.into_raw() as isize))),
        _ => {}
    }
}

macro_rules! closers {
    ($($name:ident = $next:ident by $number_of:ident;)*) => {
        $(#[cfg_attr(not(test), unsafe(no_mangle))]
        unsafe extern "C" fn $name(stream: *mut c_void) -> c_int {
            before_close_of(&$number_of, stream);
            $next.call_int([stream.reg(), 0, 0, 0, 0, 0])
        })*
    };
}

closers! {
    fclose = FCLOSE by FILENO;
    pclose = PCLOSE by FILENO;
    endmntent = ENDMNTENT by FILENO;
    closedir = CLOSEDIR by DIRFD;
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn mq_close(queue: c_int) -> c_int {
    before_close(queue);
    MQ_CLOSE.call_int([queue.reg(), 0, 0, 0, 0, 0])
}

macro_rules! reopeners {
    ($($name:ident = $next:ident;)*) => {
        $(#[cfg_attr(not(test), unsafe(no_mangle))]
        unsafe extern "C" fn $name(path: *const c_char, mode: *const c_char, stream: *mut c_void) -> *mut c_void {
            before_close_of(&FILENO, stream);
            $next.call([path.reg(), mode.reg(), stream.reg(), 0, 0, 0]) as *mut c_void
        })*
    };
}

reopeners! {
    freopen = FREOPEN;
    freopen64 = FREOPEN64;
}
