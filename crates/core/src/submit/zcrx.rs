//! Receives that wait for buffers of an area, or for room in the CQ: no event of their sockets says
//! that there are some again.

use crate::ops::Op;
use crate::state::{Ready, UringGuard};
use alloc::boxed::Box;

/// Issues such receives again if the program has returned buffers meanwhile and there is room for
/// their CQEs.
#[inline]
pub(crate) fn revive_starved(guard: &mut UringGuard) {
    if guard.res.zcrx.has_instances() {
        revive(guard);
    }
}

#[cold]
fn revive(guard: &mut UringGuard) {
    if guard.res.big_room() == 0 || !guard.res.zcrx.take_revived() {
        return;
    }
    for id in guard.matching(|_, parked| matches!(&parked.req.op, Op::Net(op) if op.is_starved())) {
        if let Some(req) = guard.disarm(id) {
            guard.ready.push_back(Ready::Issue(Box::new(req)));
        }
    }
}
