//! `IORING_OP_URING_CMD` between the ring and its file.
//!
//! A command is parked before its file gets it, and the file is called without the ring's lock: it
//! may complete the command at once, on this thread or another. Its id then finds the parked
//! request, or nothing if the ring has ended.

use super::attempt::{Attempt, Next};
use super::link_timeout;
use crate::ops::{Op, OpFile};
use crate::request::{Outcome, Request, Stage};
use crate::state::{RingState, UringGuard};
use crate::virtual_file::PendingCmd;
use alloc::sync::Arc;
use uringlet_sys::{Errno, io};

/// Whether a request is a command that is the same on every thread: one to a virtual file, or for
/// time stamps that its submitter has waited for.
pub(super) fn is_for_any_thread(guard: &mut UringGuard, req: &Request, file: OpFile) -> bool {
    let Op::Cmd(op) = &req.op else { return false };
    req.poll_fired && op.is_tx_timestamp() || guard.res.files.virtual_file(file.fd).is_some()
}

/// Gives a command to its virtual file.
pub(super) fn start(guard: &mut UringGuard, req: &mut Request, file: OpFile) -> Attempt {
    let Some(target) = guard.res.files.virtual_file(file.fd) else {
        let errno = io::file_flags(file.fd).err().unwrap_or(Errno::EOPNOTSUPP);
        return Attempt::Done(Outcome::err(errno));
    };
    let Op::Cmd(op) = &mut req.op else { return Attempt::Done(Outcome::err(Errno::EINVAL)) };
    op.file = Some(Arc::clone(&target));
    let cmd = op.cmd();
    if target.may_sleep(&cmd) {
        return Attempt::Continue(file, Next::Punt);
    }
    let id = guard.park(req.take(), Stage::Command);
    link_timeout::start(guard, id);
    let pending =
        PendingCmd { ring_index: guard.res.ring_index, ring_generation: guard.generation, id: id.to_u64(), post: guard.complete_command };
    guard.unlocked(|| target.start(&cmd, pending));
    Attempt::Parked
}

/// A ring has ended: tells files to drop its commands, which nothing waits for any more. No lock is
/// held.
pub(crate) fn cancel_all(state: &RingState) {
    for (_, parked) in state.parked.iter() {
        if let (Stage::Command, Op::Cmd(op)) = (parked.stage, &parked.req.op)
            && let Some(file) = &op.file
        {
            file.cancel(&op.cmd());
        }
    }
}
