//! `IORING_OP_NOP, NOP128`: completes at once.
//! Source:  io_uring_enter(2); behaviour of Linux 6.18 (`IORING_NOP_*` flags).
//! Issue:   completes inline.
//! Errors:  EINVAL unknown flag, `NOP_CQE32` on a ring of 16-byte CQEs; EBADF `NOP_FILE` without a
//!          file; EFAULT `NOP_FIXED_BUFFER` without a buffer.
//! Differs: nothing known.
//! Tests:   liburing nop.t, nop-all-sizes.t; ours cli/tests/cqe_ops.rs.

use super::issue::{Issue, IssueCx, OpFamily, PrepCx};
use super::outcome::Outcome;
use crate::ring::cq::CqeExtra;
use uringlet_abi::{Sqe, op_flags, setup, sqe};
use uringlet_sys::{Errno, io};

#[derive(Debug)]
pub(crate) struct Nop {
    result: i32,
    flags: u32,
    fd: i32,
    buf_index: u16,
    extra: CqeExtra,
    /// Its CQE has a second half then, also if it fails. A NOP that is cancelled has none.
    is_issued: bool,
}

#[inline]
pub(crate) fn prep(sqe: &Sqe, cx: &PrepCx) -> Result<Nop, Errno> {
    const KNOWN: u32 = op_flags::NOP_INJECT_RESULT
        | op_flags::NOP_FILE
        | op_flags::NOP_FIXED_FILE
        | op_flags::NOP_FIXED_BUFFER
        | op_flags::NOP_TW
        | op_flags::NOP_CQE32;
    let has_big_cqes = cx.setup & (setup::CQE32 | setup::CQE_MIXED) != 0;
    if sqe.op_flags & !KNOWN != 0 || sqe.op_flags & op_flags::NOP_CQE32 != 0 && !has_big_cqes {
        return Err(Errno::EINVAL);
    }
    let result = if sqe.op_flags & op_flags::NOP_INJECT_RESULT != 0 { sqe.len as i32 } else { 0 };
    Ok(Nop { result, flags: sqe.op_flags, fd: sqe.fd, buf_index: sqe.buf_index, extra: [sqe.off, sqe.addr], is_issued: false })
}

impl OpFamily for Nop {
    #[inline]
    fn try_issue(&mut self, cx: &mut IssueCx<'_>) -> Issue {
        self.is_issued = true;
        if self.flags & (op_flags::NOP_FILE | op_flags::NOP_FIXED_BUFFER) != 0
            && let Err(errno) = self.check(cx)
        {
            return errno.into();
        }
        let is_failure = self.result < 0;
        Issue::Complete(Outcome { is_failure, ..Outcome::ok(self.result) })
    }

    fn cqe_extra(&self, _: Outcome) -> Option<CqeExtra> {
        self.has_big_cqe().then_some(self.extra)
    }
}

impl Nop {
    fn has_big_cqe(&self) -> bool {
        self.is_issued && self.flags & op_flags::NOP_CQE32 != 0
    }

    fn check(&self, cx: &IssueCx<'_>) -> Result<(), Errno> {
        if self.flags & op_flags::NOP_FILE != 0 {
            // As in the kernel, the flag of all SQEs says it as well.
            if self.flags & op_flags::NOP_FIXED_FILE != 0 || cx.sqe_flags & sqe::FIXED_FILE != 0 {
                cx.ring.files.get(self.fd as u32).ok_or(Errno::EBADF)?;
            } else {
                io::file_flags(self.fd)?;
            }
        }
        if self.flags & op_flags::NOP_FIXED_BUFFER != 0 {
            cx.ring.buffers.get(self.buf_index).ok_or(Errno::EFAULT)?;
        }
        Ok(())
    }
}
