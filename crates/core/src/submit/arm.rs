//! Parking a request until its file is ready.

use super::complete::{complete, fail};
use super::link_timeout;
use super::punt::punt;
use crate::apoll::{PollTarget, PollWaiter, Rearm};
use crate::ops::{OpFile, table};
use crate::request::{Outcome, Request, Stage};
use crate::state::UringGuard;
use alloc::sync::Arc;
use uringlet_sys::Errno;

/// Parks a request until its file has one of the events of `mask`.
#[inline(never)]
pub(crate) fn arm(guard: &mut UringGuard, mut req: Request, file: OpFile, mask: u32, rearm: Rearm) {
    // The program may reuse iovecs and headers once its SQE is consumed.
    if let Err(errno) = req.op.import_args() {
        return complete(guard, req, Outcome::err(errno));
    }
    req.poll_fired = true;
    // Only a socket that answers EAGAIN is sure not to be ready; other files may be ready all the
    // same.
    let rearm = if table::of(req.opcode).is_socket || file.kind().is_socket() { rearm } else { Rearm::Recheck };
    let node = req.node().map(Arc::downgrade);
    guard.leaves_dependent |= table::of(req.opcode).acts_as_submitter;
    let id = guard.park(req, Stage::Armed { fd: file.fd });
    let place = PollTarget { fd: file.fd, node };
    let armed = guard.res.poller().and_then(|p| p.arm(place, PollWaiter { id, mask, is_multishot: false }, rearm));
    match armed {
        Ok(()) => link_timeout::start(guard, id),
        Err(errno) => {
            let Some(parked) = guard.unpark(id) else { return };
            match errno {
                // No socket, and it was not tried: `*_POLL_FIRST`.
                Errno::EPERM if table::of(parked.req.opcode).is_socket => complete(guard, parked.req, Outcome::err(Errno::EAGAIN)),
                // The file cannot be polled: a worker has to block on it.
                Errno::EPERM => punt(guard, parked.req, file),
                errno => complete(guard, parked.req, Outcome::err(errno)),
            }
        }
    }
}

/// Arms a parked request again; fails it if that is refused.
pub(super) fn rearm(guard: &mut UringGuard, waiting: PollWaiter, place: PollTarget) {
    if let Err(errno) = guard.res.poller().and_then(|p| p.arm(place, waiting, Rearm::Recheck)) {
        fail(guard, waiting.id, errno);
    }
}
