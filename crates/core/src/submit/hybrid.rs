//! Which requests take the hybrid step of `IOSQE_ASYNC` (`driver::hybrid`).

use super::attempt::Next;
use crate::apoll::Rearm;
use crate::ops::hint::AsyncHint;
use crate::ops::{Op, OpFile, table};
use crate::request::Request;
use crate::state::UringGuard;

/// Whether a worker tries this request first: it has a poll direction, and its file may have one.
pub(super) fn is_for(req: &Request, file: OpFile) -> bool {
    if !table::of(req.opcode).pollable || req.hybrid_done {
        return false;
    }
    if matches!(req.op, Op::Rw(_)) && file.kind().is_seekable() {
        return false;
    }
    !AsyncHint::Block.is_chosen() || !req.op.is_lockless()
}

/// What the submitter does: a try that is known to find nothing is not made.
pub(super) fn first_step(guard: &mut UringGuard, req: &Request, file: OpFile) -> Next {
    match req.op.receive_events() {
        Some(mask) if guard.res.known_empty(file.fd) => Next::Arm(mask, Rearm::TrustEdge),
        _ => Next::Punt,
    }
}
