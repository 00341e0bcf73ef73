//! `IORING_OP_ASYNC_CANCEL`: finds requests in flight and ends them.
//! Source:  io_uring_prep_cancel(3); behaviour of Linux 6.18 io_uring/cancel.c (not its code).
//! Issue:   operates on other requests: submit/cancel.rs.
//! Errors:  EINVAL bad fields or flags; ENOENT nothing matches; EALREADY it is running and was only
//!          interrupted.
//! Differs: a request that was cancelled is not found by a second cancel of the same submission.
//! Tests:   liburing io-cancel.t, cancel-*.t; ours cli/tests/order.rs.

use super::issue::{OpFamily, PrepCx, unused};
use uringlet_abi::{Opcode, Sqe, op_flags, sqe};
use uringlet_sys::Errno;

/// The requests that a cancel matches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CancelOp {
    /// `IORING_ASYNC_CANCEL_*`.
    pub(crate) flags: u32,
    pub(crate) user_data: u64,
    /// Descriptor, or index of a registered file.
    pub(crate) fd: i32,
    pub(crate) opcode: Option<Opcode>,
}

const KNOWN: u32 = op_flags::CANCEL_ALL
    | op_flags::CANCEL_FD
    | op_flags::CANCEL_ANY
    | op_flags::CANCEL_FD_FIXED
    | op_flags::CANCEL_USERDATA
    | op_flags::CANCEL_OP;

impl OpFamily for CancelOp {}

impl CancelOp {
    /// Validates the arguments of the opcode and of `IORING_REGISTER_SYNC_CANCEL`.
    pub(crate) fn new(flags: u32, user_data: u64, fd: i32, opcode: u8) -> Result<Self, Errno> {
        if flags & !KNOWN != 0 {
            return Err(Errno::EINVAL);
        }
        if flags & op_flags::CANCEL_FD != 0 && flags & op_flags::CANCEL_ANY != 0 {
            return Err(Errno::EINVAL);
        }
        let opcode = match flags & op_flags::CANCEL_OP {
            0 => None,
            _ if flags & op_flags::CANCEL_ANY != 0 => return Err(Errno::EINVAL),
            _ => Opcode::from_u8(opcode),
        };
        Ok(Self { flags, user_data, fd, opcode })
    }

    /// Whether user_data is compared.
    pub(crate) fn by_user_data(&self) -> bool {
        self.flags & (op_flags::CANCEL_FD | op_flags::CANCEL_ANY | op_flags::CANCEL_OP) == 0 || self.flags & op_flags::CANCEL_USERDATA != 0
    }

    /// Whether it cancels all matches, not only the first.
    pub(crate) fn is_all(&self) -> bool {
        self.flags & (op_flags::CANCEL_ALL | op_flags::CANCEL_ANY) != 0
    }
}

pub(crate) fn prep(sqe: &Sqe, _: &PrepCx) -> Result<CancelOp, Errno> {
    if sqe.flags & sqe::BUFFER_SELECT != 0 {
        return Err(Errno::EINVAL);
    }
    unused(&[sqe.off, u64::from(sqe.splice_fd_in as u32)])?;
    // Here IOSQE_FIXED_FILE names the file to match.
    let fixed = if sqe.flags & sqe::FIXED_FILE != 0 { op_flags::CANCEL_FD_FIXED } else { 0 };
    CancelOp::new(sqe.op_flags | fixed, sqe.addr, sqe.fd, sqe.len as u8)
}
