//! What a ring's descriptor refuses: read(2) and write(2), and to be sent through a socket. A FIFO
//! would do all of it.

use core::ffi::{c_int, c_uint, c_void};

use uringlet::ENGINE;
use uringlet_sys::UserPtr;

use super::errno::to_libc_result;
use super::next::{NextFunction, READ, READV, SENDMMSG, SENDMSG, WRITE, WRITEV};
use crate::convert::{Register, int};
use crate::entry::on_engine_stack;
use crate::in_use::is_in_use;

const EINVAL: isize = -22;

/// For a number that is known as a ring's, or as that of a virtual file.
#[cold]
#[inline(never)]
fn transfer(next: &NextFunction, fd: c_int, data: *mut c_void, count: usize) -> isize {
    if on_engine_stack(|| ENGINE.is_ring(fd)) {
        return to_libc_result(EINVAL);
    }
    next.call([fd.reg(), data.reg(), count, 0, 0, 0])
}

macro_rules! transfers {
    ($($name:ident = $next:ident;)*) => {
        $(#[cfg_attr(not(test), unsafe(no_mangle))]
        unsafe extern "C" fn $name(fd: c_int, data: *mut c_void, count: usize) -> isize {
            if is_in_use() && ENGINE.is_ours(fd) {
                return transfer(&$next, fd, data, count);
            }
            $next.call([fd.reg(), data.reg(), count, 0, 0, 0])
        })*
    };
}

transfers! {
    read = READ;
    write = WRITE;
    readv = READV;
    writev = WRITEV;
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
    /// Bytes of a `struct mmsghdr`.
    const STRIDE: usize = 64;
    /// The kernel sends no more in one call.
    const MOST: c_uint = 1024;
    // The kernel sends those before the message that it refuses.
    match (0..count.min(MOST)).find(|&nth| passes_a_ring(fd, messages.reg().wrapping_add(nth as usize * STRIDE))) {
        Some(0) => int(to_libc_result(EINVAL)),
        refused => SENDMMSG.call_int([fd.reg(), messages.reg(), refused.unwrap_or(count).reg(), flags.reg(), 0, 0]),
    }
}
