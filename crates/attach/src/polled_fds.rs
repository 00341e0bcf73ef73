//! What the engine has to know about poll, select and epoll: which descriptors are watched, and
//! when a wait begins.
//!
//! A program that reaps completions without a call leaves the ring's descriptor readable. The next
//! wait would return at once, again and again, so the wait itself clears stale readiness first.

use uringlet_core::ENGINE;
use uringlet_sys::linux::general::EPOLL_CTL_DEL;

use crate::convert::{Register, address, low_i32};
use crate::safe_read;

/// FD_SETSIZE does not bound select(2) on Linux; the largest descriptor does.
const MAX_FDS: usize = 1 << 20;

/// Before any wait.
pub(crate) fn settle() {
    if ENGINE.any_readable() {
        ENGINE.settle_readiness();
    }
}

/// Before epoll_ctl(2).
pub(crate) fn before_epoll_ctl(operation: i32, fd: i32) {
    if operation.cast_unsigned() != EPOLL_CTL_DEL {
        ENGINE.note_polled(fd);
    }
}

/// Before poll(2): `fds` is an array of `count` pollfds, eight bytes each, the descriptor in the
/// low half.
pub(crate) fn before_poll(fds: usize, count: usize) {
    safe_read::for_each_word(fds, count.min(MAX_FDS), |_, pollfd| ENGINE.note_polled(low_i32(address(pollfd))));
    settle();
}

/// Before select(2): sets of `count` bits.
pub(crate) fn before_select(count: usize, sets: [usize; 3]) {
    for set in sets {
        if set != 0 {
            let words = count.min(MAX_FDS).div_ceil(64);
            safe_read::for_each_word(set, words, |index, word| note_bits(index * 64, word));
        }
    }
    settle();
}

fn note_bits(first: usize, mut word: u64) {
    while word != 0 {
        ENGINE.note_polled(low_i32(first + word.trailing_zeros().reg()));
        word &= word - 1;
    }
}
