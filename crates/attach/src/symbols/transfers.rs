//! read(2), write(2) and sendmsg(2), which a ring's descriptor refuses (`ring_fd`). Polls are told
//! of a readiness before a read takes it back.

use core::ffi::{c_int, c_uint, c_void};

use uringlet_core::ENGINE;
use uringlet_sys::UserPtr;

use super::errno::to_libc_result;
use super::next::{NextFunction, READ, READV, SENDMMSG, SENDMSG, WRITE, WRITEV};
use crate::convert::{Register, int};
use crate::entry::on_engine_stack;
use crate::in_use::is_in_use;
use crate::ring_fd::{Direction, EINVAL, first_refused, refuses_transfer};

/// For a number that concerns the engine.
#[cold]
#[inline(never)]
fn transfer(next: &NextFunction, fd: c_int, data: *mut c_void, count: usize, direction: Direction) -> isize {
    if on_engine_stack(|| refuses_transfer(fd, direction)) {
        return to_libc_result(EINVAL);
    }
    next.call([fd.reg(), data.reg(), count, 0, 0, 0])
}

macro_rules! transfers {
    ($($name:ident = $next:ident $direction:ident;)*) => {
        $(#[cfg_attr(not(test), unsafe(no_mangle))]
        unsafe extern "C" fn $name(fd: c_int, data: *mut c_void, count: usize) -> isize {
            if is_in_use() && ENGINE.concerns_transfers(fd) {
                return transfer(&$next, fd, data, count, Direction::$direction);
            }
            $next.call([fd.reg(), data.reg(), count, 0, 0, 0])
        })*
    };
}

transfers! {
    read = READ Read;
    write = WRITE Write;
    readv = READV Read;
    writev = WRITEV Write;
}

fn passes_a_ring(fd: c_int, message: usize) -> bool {
    is_in_use() && on_engine_stack(|| ENGINE.passes_a_ring(fd, UserPtr::new(message)))
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn sendmsg(fd: c_int, message: *const c_void, flags: c_int) -> isize {
    if passes_a_ring(fd, message.reg()) {
        return to_libc_result(EINVAL);
    }
    SENDMSG.call([fd.reg(), message.reg(), flags.reg(), 0, 0, 0])
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn sendmmsg(fd: c_int, messages: *mut c_void, count: c_uint, flags: c_int) -> c_int {
    match first_refused(messages.reg(), count, |message| passes_a_ring(fd, message)) {
        Some(0) => int(to_libc_result(EINVAL)),
        refused => SENDMMSG.call_int([fd.reg(), messages.reg(), refused.unwrap_or(count).reg(), flags.reg(), 0, 0]),
    }
}
