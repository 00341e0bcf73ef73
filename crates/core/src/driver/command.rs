//! The completion of an `IORING_OP_URING_CMD` by its file.

use super::leave::release_ring_of_worker;
use crate::ops::Op;
use crate::request::{Outcome, ReqId};
use crate::state::{LockOwner, RINGS};
use crate::submit::{Depth, complete, run_ready};
use crate::virtual_file::PendingCmd;

/// Posts a command's CQE.
pub(crate) fn complete_command(pending: &PendingCmd, res: i32) {
    let Some(mut guard) = RINGS.get(pending.ring_index).and_then(|ring| ring.lock(LockOwner::Worker)) else { return };
    if guard.generation != pending.ring_generation {
        return;
    }
    let Some(parked) = ReqId::from_u64(pending.id).and_then(|id| guard.unpark(id)) else { return };
    let mut req = parked.req;
    // This may be the last reference to the file, which must not be dropped under the ring's lock.
    let file = if let Op::Cmd(op) = &mut req.op { op.file.take() } else { None };
    complete(&mut guard, req, Outcome { is_failure: res < 0, ..Outcome::ok(res) });
    run_ready(&mut guard, Depth::Shallow);
    release_ring_of_worker(guard);
    drop(file);
}
