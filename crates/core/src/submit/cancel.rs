//! Finds requests and cancels them, wherever they are parked.

use super::complete::complete;
use super::{punt, wait};
use crate::ops::cancel::CancelOp;
use crate::ops::table;
use crate::request::{Outcome, Parked, ReqId, Stage};
use crate::state::{RingState, UringGuard};
use alloc::sync::Arc;
use uringlet_abi::op_flags;
use uringlet_sys::{Errno, io};

/// Cancels the requests that `op` matches. Returns their number for "all", else 0; also 1 for a
/// cancelled wait, as the kernel does.
///
/// # Errors
/// `ENOENT` nothing matches; `EALREADY` the match was running and was interrupted; `EBADF`.
pub(crate) fn cancel(guard: &mut UringGuard, op: &CancelOp) -> Result<usize, Errno> {
    check_file(guard, op)?;
    let mut count = 0;
    let mut last = Err(Errno::ENOENT);
    for id in guard.matching(|state, p| matches(state, p, op)) {
        let is_wait = guard.parked(id).is_some_and(|parked| table::of(parked.req.opcode).is_wait);
        match cancel_one(guard, id) {
            Ok(()) if !op.is_all() => return Ok(usize::from(is_wait)),
            Ok(()) => count += 1,
            Err(Errno::ENOENT) => {}
            Err(errno) => {
                // An interrupted request counts among "all": it completes soon.
                count += usize::from(op.is_all());
                last = Err(errno);
                if !op.is_all() {
                    break;
                }
            }
        }
    }
    if op.is_all() { Ok(count) } else { last }
}

fn check_file(guard: &UringGuard, op: &CancelOp) -> Result<(), Errno> {
    if op.flags & op_flags::CANCEL_FD == 0 {
        return Ok(());
    }
    if op.flags & op_flags::CANCEL_FD_FIXED != 0 {
        return guard.res.files.get(op.fd as u32).map(drop).ok_or(Errno::EBADF);
    }
    io::file_flags(op.fd).map(drop)
}

fn matches(state: &RingState, parked: &Parked, op: &CancelOp) -> bool {
    let req = &parked.req;
    if op.flags & op_flags::CANCEL_ANY != 0 {
        return true;
    }
    if op.flags & op_flags::CANCEL_FD != 0 && !is_on_file(state, parked, op) {
        return false;
    }
    if op.flags & op_flags::CANCEL_OP != 0 && op.opcode != Some(req.opcode) {
        return false;
    }
    !op.by_user_data() || req.user_data == op.user_data
}

fn is_on_file(state: &RingState, parked: &Parked, op: &CancelOp) -> bool {
    if op.flags & op_flags::CANCEL_FD_FIXED == 0 {
        return parked.req.fd() == Some(op.fd);
    }
    let slot = state.res.files.get(op.fd as u32);
    parked.req.node().zip(slot).is_some_and(|(held, node)| Arc::ptr_eq(held, node))
}

/// Cancels every request that can be cancelled.
pub(crate) fn cancel_everything(guard: &mut UringGuard) {
    for id in guard.matching(|_, _| true) {
        let _ = cancel_one(guard, id);
    }
}

/// Completes one parked request with ECANCELED.
///
/// # Errors
/// `ENOENT` it cannot be cancelled by a match; `EALREADY` a worker runs it, and was interrupted.
pub(crate) fn cancel_one(guard: &mut UringGuard, id: ReqId) -> Result<(), Errno> {
    let parked = guard.parked(id).ok_or(Errno::ENOENT)?;
    let req = match parked.stage {
        Stage::Running { tid } => {
            punt::interrupt(guard, id, tid);
            return Err(Errno::EALREADY);
        }
        Stage::Worker { work } if table::of(parked.req.opcode).is_wait => wait::withdraw(guard, id, work).ok_or(Errno::ENOENT)?,
        Stage::Worker { work } => punt::unpunt(guard, id, work).ok_or(Errno::EALREADY)?,
        Stage::Aio | Stage::Command | Stage::LinkTimer { .. } => return Err(Errno::ENOENT),
        Stage::Armed { .. } | Stage::Timer { .. } | Stage::Throttled { .. } | Stage::Queued => guard.disarm(id).ok_or(Errno::ENOENT)?,
    };
    complete(guard, req, Outcome::err(Errno::ECANCELED));
    Ok(())
}
