//! LINK_TIMEOUT: a timer that guards the request before it.

use super::clock::deadline;
use crate::ops::{Op, timeout::TimeoutOp};
use crate::request::{ReqId, Stage};
use crate::state::UringGuard;
use uringlet_abi::Opcode;

/// Starts the LINK_TIMEOUT behind a request that was just parked, if there is one.
pub(crate) fn start(guard: &mut UringGuard, id: ReqId) {
    let Some(parked) = guard.parked(id) else { return };
    if let Some(timer) = parked.req.rare().and_then(|rare| rare.link_timer) {
        // The request was parked again after a try: the timer guards its new id.
        if let Some(Stage::LinkTimer { guards, .. }) = guard.parked(timer).map(|p| &mut p.stage) {
            *guards = id;
        }
        return;
    }
    if parked.req.next.as_ref().is_none_or(|next| next.opcode != Opcode::LinkTimeout) {
        return;
    }
    let Some(mut timeout) = parked.req.next.take() else { return };
    *parked.req.next = timeout.next.take();
    let Op::Timeout(TimeoutOp::Link { when }) = timeout.op else { return };
    let deadline_ns = deadline(guard, when);
    let seq = guard.res.timers.next_seq();
    let timer = guard.park(*timeout, Stage::LinkTimer { deadline_ns, seq, guards: id });
    guard.res.timers.arm(deadline_ns, seq, timer);
    if let Some(parked) = guard.parked(id) {
        parked.req.rare_mut().link_timer = Some(timer);
    }
    if guard.waiters.sleeping > 0 {
        guard.res.cq.note_must_wake();
    }
}
