//! TIMEOUTs of a forked child that exits: they go on in the process that made the ring. All under
//! the lock between processes.
//!
//! ```text
//!   child, in exit(3)                        the maker's watcher, or a thread of it in enter()
//!   writes them beside the lock, wakes the maker
//!                                            takes them as requests of its own
//! ```
//!
//! Differs: a child that is killed, or ends by _exit(2), leaves none. One that counts CQEs, repeats
//! or has links ends with ECANCELED, as one for which there is no room.

use super::timeout;
use crate::ops::{Op, timeout::TimeoutOp, timeout::TimeoutSpec};
use crate::request::{Parked, ReqId, Request, Stage};
use crate::state::UringGuard;
use uringlet_abi::{Opcode, Sqe, op_flags};
use uringlet_sys::left_timeouts::LeftTimeout;
use uringlet_sys::process;

/// Leaves this process' time-outs to the ring's maker, if that is another process and alive.
pub(crate) fn leave(guard: &mut UringGuard) {
    if !guard.other_maker().is_some_and(process::is_alive) {
        return;
    }
    let mut has_left = false;
    for id in guard.matching(|_, parked| matches!(parked.stage, Stage::Timer { .. })) {
        has_left |= leave_one(guard, id);
    }
    if has_left {
        guard.res.memory.biased_lock().notify().wake();
        guard.wake_maker();
    }
}

fn leave_one(guard: &mut UringGuard, id: ReqId) -> bool {
    let Some(left) = guard.parked(id).and_then(left_of) else { return false };
    if !guard.res.memory.left_timeouts().push(left) {
        return false;
    }
    if guard.disarm(id).is_some() {
        guard.in_flight -= 1;
    }
    true
}

/// `None`: it depends on more than its time.
fn left_of(parked: &mut Parked) -> Option<LeftTimeout> {
    let (deadline_ns, req) = (parked.deadline_ns(), &parked.req);
    let Op::Timeout(TimeoutOp::Add { when, count: 0, is_multishot: false, etime_is_success }) = &req.op else { return None };
    if req.next.is_some() {
        return None;
    }
    let (at_ns, clock) = when.absolute(deadline_ns);
    let success = if *etime_is_success { op_flags::TIMEOUT_ETIME_SUCCESS } else { 0 };
    Some(LeftTimeout { user_data: req.user_data, at_ns, flags: clock | success, sqe_flags: req.flags })
}

/// In the ring's maker: what children have left goes on here.
pub(super) fn adopt(guard: &mut UringGuard) {
    while let Some(left) = guard.res.memory.left_timeouts().pop() {
        let Some(when) = TimeoutSpec::at(left.at_ns, left.flags) else { continue };
        let etime_is_success = left.flags & op_flags::TIMEOUT_ETIME_SUCCESS != 0;
        let mut req = Request::new(&Sqe { user_data: left.user_data, flags: left.sqe_flags, ..Sqe::default() });
        req.opcode = Opcode::Timeout;
        req.thread = process::thread_key();
        req.op = Op::Timeout(TimeoutOp::Add { when, count: 0, is_multishot: false, etime_is_success });
        guard.in_flight += 1;
        timeout::add(guard, &mut req, when, 0);
    }
}
