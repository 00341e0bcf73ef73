//! `IORING_OP_POLL_ADD, POLL_REMOVE`: waits for a file's readiness, once or repeatedly.
//! Source:  io_uring_prep_poll_add(3), poll(2); behaviour of Linux 6.18 io_uring/poll.c (not its
//!          code).
//! Issue:   armed in the ring's epoll set; operates on other requests: submit/poll.rs.
//! Errors:  EINVAL bad fields or flags; EBADF; for POLL_REMOVE also ENOENT, EALREADY.
//! Differs: a readiness that has gone when the program enters is not told.
//! Tests:   liburing poll*.t; ours cli/tests/order.rs, corners.rs.

use super::issue::{OpFamily, PrepCx, unused};
use uringlet_abi::{Sqe, op_flags};
use uringlet_sys::Errno;

const POLLERR: u32 = 8;
const POLLHUP: u32 = 16;
const POLLRDHUP: u32 = 0x2000;
const EPOLLONESHOT: u32 = 1 << 30;
const EPOLLET: u32 = 1 << 31;
/// Bits that select how to poll, not for what.
const MODE_BITS: u32 = EPOLLONESHOT | EPOLLET | 1 << 28 | 1 << 29;

/// A validated request of this family.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PollOp {
    /// Waits for events.
    Add {
        /// `POLL*`, with ERR, HUP and RDHUP.
        mask: u32,
        is_multishot: bool,
    },
    /// Cancels or changes another request.
    Remove {
        /// The user_data of that request.
        target: u64,
        /// The new mask, if it changes.
        mask: Option<u32>,
        /// The new user_data, if it changes.
        user_data: Option<u64>,
    },
}

impl OpFamily for PollOp {}

fn mask_of(sqe: &Sqe) -> u32 {
    sqe.op_flags & !MODE_BITS | POLLERR | POLLHUP | POLLRDHUP
}

pub(crate) fn prep_add(sqe: &Sqe, _: &PrepCx) -> Result<PollOp, Errno> {
    unused(&[u64::from(sqe.buf_index), sqe.off, sqe.addr])?;
    // POLL_ADD_LEVEL is an error, as in Linux 6.18.
    if sqe.len & !op_flags::POLL_ADD_MULTI != 0 {
        return Err(Errno::EINVAL);
    }
    let is_multishot = sqe.len & op_flags::POLL_ADD_MULTI != 0;
    if is_multishot && sqe.flags & uringlet_abi::sqe::CQE_SKIP_SUCCESS != 0 {
        return Err(Errno::EINVAL);
    }
    Ok(PollOp::Add { mask: mask_of(sqe), is_multishot })
}

pub(crate) fn prep_remove(sqe: &Sqe, _: &PrepCx) -> Result<PollOp, Errno> {
    unused(&[u64::from(sqe.buf_index), u64::from(sqe.splice_fd_in as u32)])?;
    let flags = sqe.len;
    let updates = op_flags::POLL_UPDATE_EVENTS | op_flags::POLL_UPDATE_USER_DATA;
    if flags & !(updates | op_flags::POLL_ADD_MULTI) != 0 || flags == op_flags::POLL_ADD_MULTI {
        return Err(Errno::EINVAL);
    }
    let new_user_data = flags & op_flags::POLL_UPDATE_USER_DATA != 0;
    let new_events = flags & op_flags::POLL_UPDATE_EVENTS != 0;
    if (!new_user_data && sqe.off != 0) || (!new_events && sqe.op_flags != 0) {
        return Err(Errno::EINVAL);
    }
    Ok(PollOp::Remove { target: sqe.addr, mask: new_events.then(|| mask_of(sqe)), user_data: new_user_data.then_some(sqe.off) })
}
