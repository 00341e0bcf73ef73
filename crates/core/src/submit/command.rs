//! `IORING_OP_URING_CMD` between the ring and its file.
//!
//! A command is parked before its file hears of it, and the file is called without the ring's lock: it may complete the
//! command at once, on this thread or another. Its id then finds the parked request, or, if the ring has ended, nothing.

use super::dispatch::{self, Later};
use super::{act, complete};
use crate::ops::{Op, OpFile};
use crate::request::{Outcome, ReqId, Request, Stage};
use crate::state::{LockOwner, RINGS, RingState, UringGuard};
use crate::virtual_file::PendingCmd;
use alloc::sync::Arc;
use uringlet_sys::{Errno, io};

/// Gives a command to its file.
pub(super) fn start(guard: &mut UringGuard, mut req: Request, file: OpFile) {
    let Some(target) = guard.res.files.virtual_file(file.fd) else {
        let errno = io::file_flags(file.fd).err().unwrap_or(Errno::EOPNOTSUPP);
        return complete(guard, req, Outcome::err(errno));
    };
    let Op::Cmd(op) = &mut req.op else { return complete(guard, req, Outcome::err(Errno::EINVAL)) };
    op.file = Some(Arc::clone(&target));
    let cmd = op.cmd();
    if target.may_sleep(&cmd) {
        return dispatch::later(guard, req, file, Later::Punt);
    }
    let id = guard.park(req, Stage::Command);
    act::start_link_timer(guard, id);
    let pending = PendingCmd { ring_index: guard.res.ring_index, ring_generation: guard.generation, id: id.to_u64(), post };
    guard.unlocked(|| target.start(&cmd, pending));
}

/// A command's CQE.
fn post(pending: &PendingCmd, res: i32) {
    let Some(mut guard) = RINGS.get(pending.ring_index).and_then(|ring| ring.lock(LockOwner::Worker)) else { return };
    if guard.generation != pending.ring_generation {
        return;
    }
    let Some(parked) = ReqId::from_u64(pending.id).and_then(|id| guard.unpark(id)) else { return };
    let mut req = parked.req;
    // The file may end with this: not under the ring's lock.
    let file = if let Op::Cmd(op) = &mut req.op { op.file.take() } else { None };
    complete(&mut guard, req, Outcome { is_failure: res < 0, ..Outcome::ok(res) });
    dispatch::run_ready(&mut guard, true);
    act::leave(guard);
    drop(file);
}

/// A ring has ended: files hear of the commands that nobody waits for any more. No lock is held.
pub(crate) fn cancel_all(state: &RingState) {
    for (_, parked) in state.parked.iter() {
        if let (Stage::Command, Op::Cmd(op)) = (parked.stage, &parked.req.op)
            && let Some(file) = &op.file
        {
            file.cancel(&op.cmd());
        }
    }
}
