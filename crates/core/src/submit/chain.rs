//! Link chains: put together from SQEs, then issued, queued behind a drain, or failed as a whole.

use super::attempt::Depth;
use super::complete::fail_chain;
use super::dispatch::issue;
use super::identity::capture;
use crate::ops::{Op, table};
use crate::request::Request;
use crate::state::{UringGuard, drain::DrainRule};
use alloc::boxed::Box;
use uringlet_abi::{Opcode, sqe};
use uringlet_sys::Errno;

/// The link chain that is being put together: its newest request, which has the one before it as
/// its next. Most SQEs have no link, so an empty chain owns nothing.
#[derive(Default)]
pub(super) struct Chain {
    newest: Option<Box<Request>>,
    has_failed: bool,
    drains: bool,
}

/// How a complete chain starts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    Plain,
    /// When everything before it is complete (`IOSQE_IO_DRAIN`).
    Drained,
    /// Never: a member is malformed.
    Failed,
}

impl Chain {
    /// The next SQE starts a chain or stands alone.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.newest.is_none()
    }

    /// A LINK_TIMEOUT guards the request right before it, which must not be another LINK_TIMEOUT.
    pub(super) fn refuse_second_timeout(&self, req: &mut Request) {
        if req.opcode == Opcode::LinkTimeout
            && req.prep_error().is_none()
            && self.newest.as_ref().is_some_and(|newest| newest.opcode == Opcode::LinkTimeout)
        {
            req.op = Op::Malformed(Errno::EINVAL);
        }
    }

    /// Adds a request.
    pub(super) fn push(&mut self, guard: &mut UringGuard, mut req: Request) {
        self.has_failed |= req.prep_error().is_some();
        self.drains |= req.has(sqe::IO_DRAIN);
        guard.leaves_dependent |= table::of(req.opcode).acts_as_submitter;
        self.drains |= self.is_empty() && guard.drain.take_next();
        *req.next = self.newest.take();
        self.newest = Some(Box::new(req));
    }

    /// Issues what was collected, as one chain.
    #[inline]
    pub(super) fn finish(&mut self, guard: &mut UringGuard, depth: Depth) {
        if let Some(newest) = self.newest.take() {
            core::mem::take(self).enter(guard, newest, depth);
        }
    }

    #[inline(never)]
    fn enter(self, guard: &mut UringGuard, newest: Box<Request>, depth: Depth) {
        let start = match (self.has_failed, self.drains) {
            (true, _) => Start::Failed,
            (false, true) => Start::Drained,
            (false, false) => Start::Plain,
        };
        enter_chain(guard, *in_order(newest), start, depth);
    }
}

/// Turns a chain around, whose newest request comes first. Returns its head.
fn in_order(newest: Box<Request>) -> Box<Request> {
    let mut head = newest;
    let mut before = head.next.take();
    while let Some(mut req) = before {
        before = req.next.take();
        *req.next = Some(head);
        head = req;
    }
    head
}

/// Runs a complete chain, queues it behind a drain, or fails it.
#[inline(never)]
fn enter_chain(guard: &mut UringGuard, mut head: Request, start: Start, depth: Depth) {
    let rule = if start == Start::Drained { DrainRule::Drains } else { DrainRule::Follows };
    if start == Start::Failed {
        fail_chain(guard, head);
    } else if !guard.drain.is_idle() && (rule == DrainRule::Drains || !ends_draining(guard, &head)) {
        // As in the kernel, where such a chain waits as work for io-wq.
        capture(guard, &mut head);
        guard.drain.push(head, rule);
    } else {
        issue(guard, head, depth);
    }
}

fn ends_draining(guard: &mut UringGuard, head: &Request) -> bool {
    let in_flight = guard.in_flight;
    guard.drain.ends_with(head, in_flight)
}
