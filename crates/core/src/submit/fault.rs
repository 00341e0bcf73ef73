//! What is done to a request on purpose when it is issued. `crate::fault` has decided it.

use super::attempt::Attempt;
use super::identity::capture;
use super::link_timeout;
use super::timeout::arm_timer;
use crate::fault::FaultActions;
use crate::ops::{Op, poll::PollOp};
use crate::request::{Outcome, Request, Stage};
use crate::state::UringGuard;
use uringlet_sys::linux::general::{POLLIN, POLLOUT};
use uringlet_sys::{io, process};

const SHUT_RDWR: u32 = 2;

/// What becomes of a request before it is tried. `None`: it is tried.
#[cold]
#[inline(never)]
pub(super) fn intervene(guard: &mut UringGuard, req: &mut Request) -> Option<Attempt> {
    let fault = req.fault()?;
    let delay_ns = core::mem::take(&mut fault.delay_ns);
    if delay_ns > 0 {
        let is_burst = fault.has(FaultActions::BURST);
        return Some(delay(guard, req, delay_ns, is_burst));
    }
    let FaultActions { result, flags, .. } = *fault;
    if let Some(res) = result {
        return Some(Attempt::Done(Outcome { is_failure: res < 0, ..Outcome::ok(res) }));
    }
    if flags & FaultActions::READY != 0
        && let Op::Poll(PollOp::Add { mask, .. }) = req.op
    {
        return Some(Attempt::Done(Outcome::ok((mask & (POLLIN | POLLOUT)).cast_signed())));
    }
    if flags & FaultActions::HANGUP != 0
        && let Ok(file) = guard.resolve(req)
    {
        let _ = io::shutdown(file.fd, SHUT_RDWR);
    }
    None
}

/// Parks a request for a while, or until a multiple of it.
fn delay(guard: &mut UringGuard, req: &mut Request, delay_ns: u64, is_burst: bool) -> Attempt {
    // The program may reuse what its SQE points to.
    if let Err(errno) = req.op.import_args() {
        return Attempt::Done(Outcome::err(errno));
    }
    if let Err(errno) = guard.resolve(req) {
        return Attempt::Done(Outcome::err(errno));
    }
    guard.hold_buffer(req);
    capture(guard, req);
    let now = process::monotonic_ns();
    let deadline_ns = if is_burst { (now / delay_ns + 1) * delay_ns } else { now.saturating_add(delay_ns) };
    let seq = guard.res.timers.next_seq();
    let id = guard.park(req.take(), Stage::Delayed { deadline_ns, seq });
    arm_timer(guard, deadline_ns, seq, id);
    link_timeout::start(guard, id);
    Attempt::Parked
}
