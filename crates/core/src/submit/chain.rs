//! Link chains: put together from SQEs, then issued, queued behind a drain, or failed as a whole.

use super::attempt::Depth;
use super::complete::fail_chain;
use super::dispatch::issue;
use super::identity::capture;
use crate::ops::{Op, table};
use crate::request::Request;
use crate::state::{UringGuard, drain::DrainRule};
use alloc::boxed::Box;
use alloc::vec::Vec;
use uringlet_abi::{Opcode, sqe};
use uringlet_sys::Errno;

/// The link chain that is being put together.
#[derive(Default)]
pub(super) struct Chain {
    members: Vec<Request>,
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
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// A LINK_TIMEOUT guards the request right before it, which must not be another LINK_TIMEOUT.
    pub(super) fn refuse_second_timeout(&self, req: &mut Request) {
        if req.opcode == Opcode::LinkTimeout && self.members.last().is_some_and(|last| last.opcode == Opcode::LinkTimeout) {
            req.op = Op::Malformed(Errno::EINVAL);
        }
    }

    /// Adds a request.
    pub(super) fn push(&mut self, guard: &mut UringGuard, req: Request) {
        self.has_failed |= req.prep_error().is_some();
        self.drains |= req.has(sqe::IO_DRAIN);
        guard.leaves_dependent |= table::of(req.opcode).acts_as_submitter;
        self.drains |= self.members.is_empty() && guard.drain.take_next();
        self.members.push(req);
    }

    /// Issues what was collected, as one chain.
    pub(super) fn finish(&mut self, guard: &mut UringGuard, depth: Depth) {
        let start = match (core::mem::take(&mut self.has_failed), core::mem::take(&mut self.drains)) {
            (true, _) => Start::Failed,
            (false, true) => Start::Drained,
            (false, false) => Start::Plain,
        };
        let mut head: Option<Box<Request>> = None;
        while let Some(mut req) = self.members.pop() {
            *req.next = head;
            head = Some(Box::new(req));
        }
        if let Some(head) = head {
            enter_chain(guard, *head, start, depth);
        }
    }
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
