//! `IOSQE_IO_DRAIN`: a chain that waits until everything before it is complete, and everything behind it waits for it.
//!
//! From a draining request on, every chain goes through the queue, until one comes to an idle ring; the queue is looked at when a submission ends. What stands first in the queue waits until nothing is
//! in flight, draining or not: what drains has to be complete before the next begins. A chain that drains in its middle drains as a whole, and the one
//! behind it drains too. Once a ring has seen `IOSQE_CQE_SKIP_SUCCESS`, nothing drains any more.

use crate::request::Request;
use alloc::collections::VecDeque;

/// Chains that wait their turn, in order of submission.
#[derive(Debug, Default)]
pub(crate) struct DrainQueue {
    chains: VecDeque<(Request, bool)>,
    /// Requests in these chains.
    requests: u32,
    /// Chains have to go through here.
    is_active: bool,
    /// The next chain drains, too.
    is_next: bool,
    /// An SQE with `CQE_SKIP_SUCCESS` was seen.
    is_barred: bool,
}

/// What one run over the queue has let pass.
#[derive(Debug, Default)]
pub(crate) struct DrainPass {
    has_passed: bool,
    has_drained: bool,
}

fn length(head: &Request) -> u32 {
    core::iter::successors(Some(head), |req| req.next.as_deref()).count() as u32
}

impl DrainQueue {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.chains.is_empty()
    }

    /// Nothing has to pass through here.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        !self.is_active && !self.is_next
    }

    /// Whether `IOSQE_IO_DRAIN` is refused.
    pub(crate) fn is_barred(&self) -> bool {
        self.is_barred
    }

    /// An SQE with `CQE_SKIP_SUCCESS`: completions can no longer be counted by who drains.
    pub(crate) fn bar(&mut self) {
        self.is_barred = true;
    }

    /// An SQE with `IO_DRAIN`, perhaps in the middle of a chain.
    pub(crate) fn begin(&mut self, is_after_link: bool) {
        self.is_active = true;
        self.is_next |= is_after_link;
    }

    /// Whether the chain that begins now drains because of the one before it.
    pub(crate) fn take_next(&mut self) -> bool {
        self.is_active |= self.is_next;
        core::mem::take(&mut self.is_next)
    }

    /// Requests that wait here.
    pub(crate) fn requests(&self) -> u32 {
        self.requests
    }

    /// Puts a chain at the end; `drains` if it must wait for all before it.
    pub(crate) fn push(&mut self, head: Request, drains: bool) {
        self.requests += length(&head);
        self.chains.push_back((head, drains));
    }

    /// A chain that does not drain: it need not queue, and nobody after it, if it is all there is on the ring.
    pub(crate) fn ends_with(&mut self, head: &Request, in_flight: u32) -> bool {
        let is_alone = self.chains.is_empty() && in_flight == length(head);
        self.is_active &= !is_alone;
        is_alone
    }

    /// The next chain whose turn has come, when `busy` requests outside the queue are not complete.
    pub(crate) fn pop(&mut self, busy: u32, pass: &mut DrainPass) -> Option<Request> {
        let &(_, drains) = self.chains.front()?;
        pass.has_drained |= drains;
        if (pass.has_drained || !pass.has_passed) && busy > 0 {
            return None;
        }
        pass.has_passed = true;
        let (head, _) = self.chains.pop_front()?;
        self.requests -= length(&head);
        Some(head)
    }
}
