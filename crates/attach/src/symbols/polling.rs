//! poll, select and epoll: what they are asked to watch is told to the engine, and stale readiness is taken back before they wait.
//!
//! A program that reaps completions without a call leaves the ring's descriptor readable behind. The next wait would return at once, again and again; so
//! the wait itself clears it first.

use core::ffi::{c_int, c_ulong, c_void};

use uringlet::ENGINE;

use super::next::{EPOLL_CTL, EPOLL_PWAIT, EPOLL_PWAIT2, EPOLL_WAIT, POLL, POLL_CHK, PPOLL, PPOLL_CHK, PSELECT, SELECT};
use crate::entry::on_engine_stack;
use crate::safe_read;

const EPOLL_CTL_DEL: c_int = 2;
/// FD_SETSIZE does not bound select(2) on Linux; the largest descriptor does.
const MAX_FDS: usize = 1 << 20;

/// Before any wait.
pub(crate) fn settle() {
    if ENGINE.any_readable() {
        ENGINE.settle_readiness();
    }
}

/// Before epoll_ctl(2).
pub(crate) fn before_epoll_ctl(operation: c_int, fd: c_int) {
    if operation != EPOLL_CTL_DEL {
        ENGINE.note_polled(fd);
    }
}

/// Before poll(2): `fds` is an array of `count` pollfds, eight bytes each, the descriptor in the low half.
pub(crate) fn before_poll(fds: usize, count: usize) {
    safe_read::words(fds, count.min(MAX_FDS), |_, pollfd| ENGINE.note_polled(pollfd as u32 as i32));
    settle();
}

/// Before select(2): sets of `count` bits.
pub(crate) fn before_select(count: usize, sets: [usize; 3]) {
    for set in sets {
        if set != 0 {
            let words = count.min(MAX_FDS).div_ceil(64);
            safe_read::words(set, words, |index, word| note_bits(index * 64, word));
        }
    }
    settle();
}

fn note_bits(first: usize, mut word: u64) {
    while word != 0 {
        ENGINE.note_polled((first + word.trailing_zeros() as usize) as i32);
        word &= word - 1;
    }
}

/// Nothing to note or to settle before the first ring.
fn if_any_ring(f: impl FnOnce()) {
    if safe_read::any_ring() {
        on_engine_stack(f);
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn epoll_ctl(epfd: c_int, operation: c_int, fd: c_int, event: *mut c_void) -> c_int {
    if_any_ring(|| before_epoll_ctl(operation, fd));
    EPOLL_CTL.call_int([epfd as usize, operation as usize, fd as usize, event as usize, 0, 0])
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn epoll_wait(epfd: c_int, events: *mut c_void, max: c_int, timeout: c_int) -> c_int {
    if_any_ring(settle);
    EPOLL_WAIT.call_int([epfd as usize, events as usize, max as usize, timeout as usize, 0, 0])
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn epoll_pwait(epfd: c_int, events: *mut c_void, max: c_int, timeout: c_int, mask: *const c_void) -> c_int {
    if_any_ring(settle);
    // The sixth argument is the size of the mask, for a libc without the function.
    EPOLL_PWAIT.call_int([epfd as usize, events as usize, max as usize, timeout as usize, mask as usize, 8])
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn epoll_pwait2(epfd: c_int, events: *mut c_void, max: c_int, timeout: *const c_void, mask: *const c_void) -> c_int {
    if_any_ring(settle);
    EPOLL_PWAIT2.call_int([epfd as usize, events as usize, max as usize, timeout as usize, mask as usize, 8])
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn poll(fds: *mut c_void, count: c_ulong, timeout: c_int) -> c_int {
    if_any_ring(|| before_poll(fds as usize, count as usize));
    POLL.call_int([fds as usize, count as usize, timeout as usize, 0, 0, 0])
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn __poll_chk(fds: *mut c_void, count: c_ulong, timeout: c_int, bytes: usize) -> c_int {
    if_any_ring(|| before_poll(fds as usize, count as usize));
    POLL_CHK.call_int([fds as usize, count as usize, timeout as usize, bytes, 0, 0])
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn ppoll(fds: *mut c_void, count: c_ulong, timeout: *const c_void, mask: *const c_void) -> c_int {
    if_any_ring(|| before_poll(fds as usize, count as usize));
    PPOLL.call_int([fds as usize, count as usize, timeout as usize, mask as usize, 8, 0])
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn __ppoll_chk(fds: *mut c_void, count: c_ulong, timeout: *const c_void, mask: *const c_void, bytes: usize) -> c_int {
    if_any_ring(|| before_poll(fds as usize, count as usize));
    PPOLL_CHK.call_int([fds as usize, count as usize, timeout as usize, mask as usize, bytes, 0])
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn select(count: c_int, read: *mut c_void, write: *mut c_void, except: *mut c_void, timeout: *mut c_void) -> c_int {
    if_any_ring(|| before_select(count.max(0) as usize, [read as usize, write as usize, except as usize]));
    SELECT.call_int([count as usize, read as usize, write as usize, except as usize, timeout as usize, 0])
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
    if_any_ring(|| before_select(count.max(0) as usize, [read as usize, write as usize, except as usize]));
    PSELECT.call_int([count as usize, read as usize, write as usize, except as usize, timeout as usize, mask as usize])
}
