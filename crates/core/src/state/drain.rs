//! `IOSQE_IO_DRAIN`: a chain that waits until everything before it is complete, while everything
//! behind it waits for it.
//!
//! From a draining request on, every chain goes through the queue, until one finds the ring idle.
//! The queue is checked at the end of each submission. Its first chain, draining or not, waits
//! until nothing is in flight: a draining chain has to be complete before the next begins. A chain
//! with a draining request in its middle drains as a whole, and so does the chain behind it. Once a
//! ring has seen `IOSQE_CQE_SKIP_SUCCESS`, nothing drains any more.

use crate::request::Request;
use alloc::collections::VecDeque;

/// Whether a chain waits for all before it (`IOSQE_IO_DRAIN`), or only for its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DrainRule {
    Drains,
    Follows,
}

/// Chains that wait their turn, in order of submission.
#[derive(Debug, Default)]
pub(crate) struct DrainQueue {
    chains: VecDeque<(Request, DrainRule)>,
    /// Requests in these chains.
    requests: u32,
    /// Chains go through the queue.
    is_active: bool,
    /// The next chain drains, too.
    is_next: bool,
    /// An SQE with `CQE_SKIP_SUCCESS` was seen.
    is_barred: bool,
}

/// What one pass over the queue has released.
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

    /// Whether chains need not go through the queue.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        !self.is_active && !self.is_next
    }

    /// Whether `IOSQE_IO_DRAIN` is refused.
    pub(crate) fn is_barred(&self) -> bool {
        self.is_barred
    }

    /// An SQE with `CQE_SKIP_SUCCESS`: a drain can no longer count completions.
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

    /// Whether a chain was submitted by the thread with this key.
    pub(crate) fn has_of(&self, thread: u64) -> bool {
        self.chains.iter().any(|(head, _)| head.thread == thread)
    }

    /// Requests in the queue.
    pub(crate) fn requests(&self) -> u32 {
        self.requests
    }

    /// Puts a chain at the end.
    pub(crate) fn push(&mut self, head: Request, rule: DrainRule) {
        self.requests += length(&head);
        self.chains.push_back((head, rule));
    }

    /// A chain that does not drain: if nothing else is on the ring, neither it nor later chains
    /// have to queue.
    pub(crate) fn ends_with(&mut self, head: &Request, in_flight: u32) -> bool {
        let is_alone = self.chains.is_empty() && in_flight == length(head);
        self.is_active &= !is_alone;
        is_alone
    }

    /// The next chain that may start while `busy` requests outside the queue are not complete.
    pub(crate) fn pop(&mut self, busy: u32, pass: &mut DrainPass) -> Option<Request> {
        let &(_, rule) = self.chains.front()?;
        pass.has_drained |= rule == DrainRule::Drains;
        if (pass.has_drained || !pass.has_passed) && busy > 0 {
            return None;
        }
        pass.has_passed = true;
        let (head, _) = self.chains.pop_front()?;
        self.requests -= length(&head);
        Some(head)
    }
}
