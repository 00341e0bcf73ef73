//! Calls that a step under a queue's lock leaves to be made without the lock, in order.

use crate::frontend::{BlockClient, DataLocation, IoOp, IoSlot};
use crate::platform::SlotRange;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use uringlet_sys::Errno;

/// One call to be made without a lock.
#[derive(Debug)]
pub(crate) enum DeferredAction<C> {
    /// Complete a server's command.
    Complete(C, i32),
    /// Report a finished request to its client.
    Done { client: Arc<dyn BlockClient>, cookie: u64, slot: IoSlot, result: Result<(), Errno> },
    /// Notify a client that waits for a slot.
    SlotFreed { client: Arc<dyn BlockClient>, queue: u16 },
    /// Copy WRITE data to the server; then `QueueInner::dispatch_copy_done`.
    DispatchCopy { range: SlotRange, data: DataLocation, addr: u64, epoch: u32 },
    /// Copy the data of a commit; then `QueueInner::commit_copy_done`.
    CommitCopy(CommitCopy),
}

/// The copy that a commit needs.
#[derive(Debug)]
pub(crate) struct CommitCopy {
    /// The bytes that the commit covers.
    pub(crate) range: SlotRange,
    pub(crate) data: DataLocation,
    pub(crate) addr: u64,
    pub(crate) op: IoOp,
    /// Bytes that the server was asked for.
    pub(crate) requested: u32,
    pub(crate) stash: Vec<u8>,
}

/// A short list: most steps defer one or two actions, which need no allocation.
#[derive(Debug)]
pub(crate) struct DeferredActions<C> {
    first: Option<DeferredAction<C>>,
    second: Option<DeferredAction<C>>,
    more: VecDeque<DeferredAction<C>>,
}

impl<C> DeferredActions<C> {
    pub(crate) const fn new() -> Self {
        Self { first: None, second: None, more: VecDeque::new() }
    }

    pub(crate) fn push(&mut self, action: DeferredAction<C>) {
        if self.first.is_none() && self.second.is_none() && self.more.is_empty() {
            self.first = Some(action);
        } else if self.second.is_none() && self.more.is_empty() {
            self.second = Some(action);
        } else {
            self.more.push_back(action);
        }
    }

    pub(crate) fn pop(&mut self) -> Option<DeferredAction<C>> {
        self.first.take().or_else(|| self.second.take()).or_else(|| self.more.pop_front())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_keep_their_order() {
        let mut actions = DeferredActions::new();
        let mut next = 0;
        let mut seen = Vec::new();
        for round in 0..5 {
            for _ in 0..round {
                actions.push(DeferredAction::Complete(next, 0));
                next += 1;
            }
            for _ in 0..2 {
                if let Some(DeferredAction::Complete(n, _)) = actions.pop() {
                    seen.push(n);
                }
            }
        }
        while let Some(DeferredAction::Complete(n, _)) = actions.pop() {
            seen.push(n);
        }
        assert_eq!(seen, (0..next).collect::<Vec<i32>>());
    }
}
