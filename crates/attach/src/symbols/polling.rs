//! poll, select and epoll: the engine is told what they watch, and stale readiness is cleared
//! before they wait (`polled_fds`).

use core::ffi::{c_int, c_ulong, c_void};

use super::next::{EPOLL_CTL, EPOLL_PWAIT, EPOLL_PWAIT2, EPOLL_WAIT, POLL, POLL_CHK, PPOLL, PPOLL_CHK, PSELECT, SELECT};
use crate::convert::Register;
use crate::entry::on_engine_stack;
use crate::in_use::is_in_use;
use crate::polled_fds::{before_epoll_ctl, before_poll, before_select, settle};

/// Before the first ring there is nothing to note or to clear.
fn if_in_use(f: impl FnOnce()) {
    if is_in_use() {
        on_engine_stack(f);
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn epoll_ctl(epfd: c_int, operation: c_int, fd: c_int, event: *mut c_void) -> c_int {
    if_in_use(|| before_epoll_ctl(operation, fd));
    EPOLL_CTL.call_int([epfd.reg(), operation.reg(), fd.reg(), event.reg(), 0, 0])
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn epoll_wait(epfd: c_int, events: *mut c_void, max: c_int, timeout: c_int) -> c_int {
    if_in_use(settle);
    EPOLL_WAIT.call_int([epfd.reg(), events.reg(), max.reg(), timeout.reg(), 0, 0])
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn epoll_pwait(epfd: c_int, events: *mut c_void, max: c_int, timeout: c_int, mask: *const c_void) -> c_int {
    if_in_use(settle);
    // The sixth argument is the size of the mask, for a libc without the function.
    EPOLL_PWAIT.call_int([epfd.reg(), events.reg(), max.reg(), timeout.reg(), mask.reg(), 8])
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn epoll_pwait2(epfd: c_int, events: *mut c_void, max: c_int, timeout: *const c_void, mask: *const c_void) -> c_int {
    if_in_use(settle);
    EPOLL_PWAIT2.call_int([epfd.reg(), events.reg(), max.reg(), timeout.reg(), mask.reg(), 8])
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn poll(fds: *mut c_void, count: c_ulong, timeout: c_int) -> c_int {
    if_in_use(|| before_poll(fds.reg(), count.reg()));
    POLL.call_int([fds.reg(), count.reg(), timeout.reg(), 0, 0, 0])
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn __poll_chk(fds: *mut c_void, count: c_ulong, timeout: c_int, bytes: usize) -> c_int {
    if_in_use(|| before_poll(fds.reg(), count.reg()));
    POLL_CHK.call_int([fds.reg(), count.reg(), timeout.reg(), bytes, 0, 0])
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn ppoll(fds: *mut c_void, count: c_ulong, timeout: *const c_void, mask: *const c_void) -> c_int {
    if_in_use(|| before_poll(fds.reg(), count.reg()));
    PPOLL.call_int([fds.reg(), count.reg(), timeout.reg(), mask.reg(), 8, 0])
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn __ppoll_chk(fds: *mut c_void, count: c_ulong, timeout: *const c_void, mask: *const c_void, bytes: usize) -> c_int {
    if_in_use(|| before_poll(fds.reg(), count.reg()));
    PPOLL_CHK.call_int([fds.reg(), count.reg(), timeout.reg(), mask.reg(), bytes, 0])
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn select(count: c_int, read: *mut c_void, write: *mut c_void, except: *mut c_void, timeout: *mut c_void) -> c_int {
    if_in_use(|| before_select(count.max(0).reg(), [read.reg(), write.reg(), except.reg()]));
    SELECT.call_int([count.reg(), read.reg(), write.reg(), except.reg(), timeout.reg(), 0])
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn pselect(
    count: c_int,
    read: *mut c_void,
    write: *mut c_void,
    except: *mut c_void,
    timeout: *const c_void,
    mask: *const c_void,
) -> c_int {
    if_in_use(|| before_select(count.max(0).reg(), [read.reg(), write.reg(), except.reg()]));
    PSELECT.call_int([count.reg(), read.reg(), write.reg(), except.reg(), timeout.reg(), mask.reg()])
}
