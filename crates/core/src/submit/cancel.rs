//! Finds requests and cancels them, wherever they are parked.

use super::{punt, wait};
use crate::file::FileKind;
use crate::ops::cancel::CancelOp;
use crate::ops::{Op, table, timeout::TimeoutOp};
use crate::request::{Outcome, Parked, ReqId, Stage};
use crate::state::{Ready, RingState, UringGuard};
use alloc::boxed::Box;
use alloc::vec::Vec;
use uringlet_abi::{Opcode, op_flags};
use uringlet_sys::{Errno, io, process};

/// Cancels the requests of this process that `op` matches. Returns their number for "all", else 0;
/// also 1 for a cancelled wait, as the kernel does.
///
/// # Errors
/// `ENOENT` nothing matches; `EALREADY` the match was running and was interrupted.
pub(super) fn cancel(guard: &mut UringGuard, op: &CancelOp) -> Result<usize, Errno> {
    let mut cancelled = Vec::new();
    let result = cancel_matches(guard, op, &mut cancelled);
    // Only now: to cancel a wait, the lock is released for a moment, and no other thread may
    // complete what comes after the cancel.
    guard.ready.extend(cancelled);
    result
}

fn cancel_matches(guard: &mut UringGuard, op: &CancelOp, cancelled: &mut Vec<Ready>) -> Result<usize, Errno> {
    let mut count = 0;
    let mut last = Err(Errno::ENOENT);
    let mut counted = None;
    let is_any = op.flags & op_flags::CANCEL_ANY != 0;
    let user_data = (op.by_user_data() && !is_any).then_some(op.user_data);
    let numbers = numbers_of_file(guard, op);
    for id in find(guard, user_data, |_, p| matches(p, op, &numbers)) {
        if is_over(guard, id) {
            continue;
        }
        let wait = guard.parked(id).map(|parked| parked.req.opcode).filter(|&opcode| table::of(opcode).is_wait);
        match end(guard, id) {
            Ok(ready) => {
                cancelled.push(ready);
                if !op.is_all() {
                    return Ok(usize::from(wait.is_some()));
                }
                // With the flag itself the kernel cancels all waits of a kind at once, and counts
                // them as one.
                let is_counted = op.flags & op_flags::CANCEL_ALL != 0 && wait.is_some() && counted == wait;
                count += usize::from(!is_counted);
                counted = wait;
            }
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

/// Whether a timeout has expired, and waits only for its CQE: the kernel's timers fire by
/// themselves. One that repeats is found between two of its times.
pub(super) fn is_over(guard: &mut UringGuard, id: ReqId) -> bool {
    let Some(parked) = guard.parked(id) else { return false };
    let is_single = matches!(parked.req.op, Op::Timeout(TimeoutOp::Add { is_multishot: false, .. }));
    let Stage::Timer { deadline_ns, .. } = parked.stage else { return false };
    is_single && deadline_ns <= process::monotonic_ns()
}

/// The requests of which `wanted` is true, with a certain user_data if one is given, in the order
/// in which the kernel finds them: those on workers; armed ones, which it keeps in a hash table by
/// user_data; waits; timeouts. In the table and among waits it finds the latest first.
pub(super) fn find(guard: &mut UringGuard, user_data: Option<u64>, wanted: impl Fn(&RingState, &Parked) -> bool) -> Vec<ReqId> {
    let mut ids = match user_data {
        Some(user_data) => guard.matching_user_data(user_data, wanted),
        None => guard.matching(wanted),
    };
    if ids.len() > 1 {
        let bits = (guard.res.memory.geometry().cq_entries.ilog2().saturating_sub(5)).clamp(1, 8);
        ids.sort_by_cached_key(|&id| guard.parked(id).map(|parked| search_key(parked, bits)));
    }
    ids
}

/// Kind, bucket, and place in the bucket. `bits`: the size of the hash table.
fn search_key(parked: &Parked, bits: u32) -> (u8, u64, u32) {
    /// The fraction of the golden ratio, as multiplicative hashing has it.
    const GOLDEN: u64 = 0x61c8_8646_80b5_83eb;
    let age = parked.generation.get();
    match (parked.stage, parked.req.opcode) {
        (_, Opcode::Waitid) => (2, 0, !age),
        (_, Opcode::FutexWait | Opcode::FutexWaitv) => (3, 0, !age),
        (Stage::Armed { .. }, _) => (1, parked.req.user_data.wrapping_mul(GOLDEN) >> (64 - bits), !age),
        (Stage::Timer { .. }, _) => (4, 0, age),
        _ => (0, 0, age),
    }
}

/// # Errors
/// `EBADF`: there is no such file.
pub(super) fn check_file(guard: &UringGuard, op: &CancelOp) -> Result<(), Errno> {
    if op.flags & op_flags::CANCEL_FD == 0 {
        return Ok(());
    }
    if op.flags & op_flags::CANCEL_FD_FIXED != 0 {
        return guard.res.files.get(op.fd as u32).map(drop).ok_or(Errno::EBADF);
    }
    io::file_flags(op.fd).map(drop)
}

/// The numbers of the file that a cancel by descriptor names, among those that requests use: its
/// duplicates, registered ones too. Ascending.
fn numbers_of_file(guard: &UringGuard, op: &CancelOp) -> Vec<i32> {
    if op.flags & op_flags::CANCEL_FD == 0 {
        return Vec::new();
    }
    let slot = guard.res.files.get(op.fd as u32).map(|node| node.fd.number());
    let Some(named) = (if op.flags & op_flags::CANCEL_FD_FIXED == 0 { Some(op.fd) } else { slot }) else { return Vec::new() };
    let kind = FileKind::refresh(named);
    // Few are asked for: a program may wait on thousands of sockets.
    let mut numbers = guard.open_numbers(|number| FileKind::of(number).may_be_same(kind));
    numbers.retain(|&number| number == named || io::is_same_file(number, named));
    numbers
}

/// `numbers`: those of the file, where it is compared.
fn matches(parked: &Parked, op: &CancelOp, numbers: &[i32]) -> bool {
    let req = &parked.req;
    if op.flags & op_flags::CANCEL_ANY != 0 {
        return true;
    }
    let is_on_file = || req.open_number().is_some_and(|number| numbers.binary_search(&number).is_ok());
    if op.flags & op_flags::CANCEL_FD != 0 && !is_on_file() {
        return false;
    }
    if op.flags & op_flags::CANCEL_OP != 0 && op.opcode != Some(req.opcode) {
        return false;
    }
    !op.by_user_data() || req.user_data == op.user_data
}

/// Cancels every request that can be cancelled: `run_ready` completes them.
pub(crate) fn cancel_everything(guard: &mut UringGuard) {
    for id in guard.matching(|_, _| true) {
        let _ = cancel_one(guard, id);
    }
}

/// Cancels one parked request: `run_ready` completes it, after its canceller.
///
/// # Errors
/// `ENOENT` it cannot be cancelled by a match; `EALREADY` a worker runs it, and was interrupted.
pub(crate) fn cancel_one(guard: &mut UringGuard, id: ReqId) -> Result<(), Errno> {
    let ready = end(guard, id)?;
    guard.ready.push_back(ready);
    Ok(())
}

/// Ends one parked request with ECANCELED. The caller queues its completion.
///
/// # Errors
/// `ENOENT` it cannot be cancelled by a match; `EALREADY` a worker runs it, and was interrupted.
fn end(guard: &mut UringGuard, id: ReqId) -> Result<Ready, Errno> {
    let parked = guard.parked(id).ok_or(Errno::ENOENT)?;
    let req = match parked.stage {
        Stage::Running => {
            let executor = parked.executor;
            punt::interrupt(guard, id, executor);
            return Err(Errno::EALREADY);
        }
        Stage::Worker { work } if table::of(parked.req.opcode).is_wait => wait::withdraw(guard, id, work).ok_or(Errno::ENOENT)?,
        Stage::Worker { work } => punt::unpunt(guard, id, work).ok_or(Errno::EALREADY)?,
        Stage::Aio | Stage::Command | Stage::LinkTimer { .. } => return Err(Errno::ENOENT),
        Stage::Armed { .. } | Stage::Timer { .. } | Stage::Throttled { .. } | Stage::Delayed { .. } | Stage::Queued => {
            guard.disarm(id).ok_or(Errno::ENOENT)?
        }
    };
    // A futex wait is cancelled without a failure: its links go on.
    let is_failure = req.opcode != Opcode::FutexWait && req.opcode != Opcode::FutexWaitv;
    Ok(Ready::Complete(Box::new(req), Outcome { is_failure, ..Outcome::err(Errno::ECANCELED) }))
}
