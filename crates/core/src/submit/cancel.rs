//! Finding requests and ending them. This file alone knows in which order io-wq, poll and timers are asked.

use super::{act, complete, punt, wait};
use crate::ops::cancel::CancelOp;
use crate::request::{Outcome, Parked, ReqId, Stage, Target};
use crate::state::UringGuard;
use alloc::sync::Arc;
use alloc::vec::Vec;
use uringlet_abi::op_flags;
use uringlet_sys::{Errno, io};

/// Cancels what `op` means. How many for "all", else 0; or 1 where the kernel counts all the same.
///
/// # Errors
/// `ENOENT` nothing matches; `EALREADY` what matches could only be interrupted; `EBADF`.
pub(crate) fn cancel(guard: &mut UringGuard, op: &CancelOp) -> Result<usize, Errno> {
    check_file(guard, op)?;
    let mut count = 0;
    let mut last = Err(Errno::ENOENT);
    for id in matching(guard, |g, p| matches(g, p, op)) {
        let is_wait = guard.parked(id).is_some_and(|parked| wait::is_wait(parked.req.opcode));
        match cancel_one(guard, id) {
            Ok(()) if !op.is_all() => return Ok(usize::from(is_wait)),
            Ok(()) => count += 1,
            Err(Errno::ENOENT) => {}
            Err(errno) => {
                // What was interrupted counts among "all": its end is on its way.
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

/// The parked requests of which `wanted` is true, in order of submission.
pub(crate) fn matching(guard: &UringGuard, wanted: impl Fn(&UringGuard, &Parked) -> bool) -> Vec<ReqId> {
    let mut ids: Vec<ReqId> =
        guard.parked.iter().filter(|(_, p)| wanted(guard, p)).map(|(key, p)| ReqId { key: key as u32, generation: p.generation }).collect();
    ids.sort_by_key(|id| id.generation);
    ids
}

fn matches(guard: &UringGuard, parked: &Parked, op: &CancelOp) -> bool {
    let req = &parked.req;
    if op.flags & op_flags::CANCEL_ANY != 0 {
        return true;
    }
    if op.flags & op_flags::CANCEL_FD != 0 && !is_on_file(guard, parked, op) {
        return false;
    }
    if op.flags & op_flags::CANCEL_OP != 0 && op.opcode != Some(req.opcode) {
        return false;
    }
    !op.by_user_data() || req.user_data == op.user_data
}

fn is_on_file(guard: &UringGuard, parked: &Parked, op: &CancelOp) -> bool {
    if op.flags & op_flags::CANCEL_FD_FIXED == 0 {
        return parked.req.fd() == Some(op.fd);
    }
    match (&parked.req.target, guard.res.files.get(op.fd as u32)) {
        (Target::Held(held), Some(node)) => Arc::ptr_eq(held, node),
        _ => false,
    }
}

/// Ends whatever can be ended.
pub(crate) fn cancel_everything(guard: &mut UringGuard) {
    for id in matching(guard, |_, _| true) {
        let _ = cancel_one(guard, id);
    }
}

/// Ends one parked request with ECANCELED.
///
/// # Errors
/// `ENOENT` it is not one that can be found; `EALREADY` a worker is at it, and was interrupted.
pub(crate) fn cancel_one(guard: &mut UringGuard, id: ReqId) -> Result<(), Errno> {
    let parked = guard.parked(id).ok_or(Errno::ENOENT)?;
    let req = match parked.stage {
        Stage::Attended { tid } => {
            punt::interrupt(guard, id, tid);
            return Err(Errno::EALREADY);
        }
        Stage::Worker { work } if wait::is_wait(parked.req.opcode) => wait::end(guard, id, work).ok_or(Errno::ENOENT)?,
        Stage::Worker { work } => punt::unpunt(guard, id, work).ok_or(Errno::EALREADY)?,
        Stage::Aio | Stage::Command | Stage::LinkTimer { .. } => return Err(Errno::ENOENT),
        Stage::Armed { .. } | Stage::Timer { .. } | Stage::Throttled { .. } | Stage::InLine => {
            act::disarm(guard, id).ok_or(Errno::ENOENT)?
        }
    };
    complete(guard, req, Outcome::err(Errno::ECANCELED));
    Ok(())
}
