//! Requests of one client that wait for a free slot of their queue.
//!
//! A client registers for [`slot_freed`](crate::frontend::BlockClient::slot_freed) by an
//! `alloc_slot` that finds none. A slot may be freed between that call and the moment when the
//! request is queued:
//!
//! ```text
//!   start_or_wait                                     another thread frees a slot
//!     waiting_count == 0
//!     alloc_slot: none, the client is registered
//!                                                       slot_freed -> dispatch: nothing waits
//!     push, waiting_count = 1         Release
//!     dispatch: alloc_slot again
//! ```
//! The notification was too early, but the second `alloc_slot` finds the slot, or registers the
//! client once more. So each push is followed by a dispatch.
//!
//! One thread at a time dispatches: a request that ends at once frees its slot deep in that
//! thread's own stack, and would recurse. Every other caller leaves a kick behind:
//!
//! ```text
//!   dispatcher                                        another thread
//!     kicks: 0 -> 1
//!     waiting_count == 0              Acquire
//!                                                       push, waiting_count = 1         Release
//!                                                       kicks: 1 -> 2: leaves           AcqRel
//!     kicks -= 1: one is left         AcqRel
//!     waiting_count == 1: starts it
//!     kicks -= 1: none is left
//!                                                       kicks: 0 -> 1: dispatches itself
//! ```
//! The subtraction that leaves a kick has read the other thread's addition, and what that thread
//! stored before: no request and no freed slot is overlooked. Model:
//! `slot_queues_start_every_request`.

use crate::frontend::IoSlot;
use alloc::collections::VecDeque;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use uringlet_sys::lock::Mutex;
use uringlet_sys::sync::AtomicU32;

/// What a queue uses of its client and device.
pub(crate) trait SlotStarter<T> {
    /// A free slot. If there is none, the client's `slot_freed` is called for the next one, and
    /// calls [`SlotQueue::dispatch`].
    fn alloc_slot(&self) -> Option<IoSlot>;

    fn free_slot(&self, slot: IoSlot);

    fn start(&self, slot: IoSlot, item: T);
}

/// See the module.
#[derive(Debug)]
pub(crate) struct SlotQueue<T> {
    waiting: Mutex<VecDeque<T>>,
    /// Length of `waiting`: changed under its lock, read without.
    waiting_count: AtomicU32,
    /// Reasons to look at `waiting`. The thread that adds the first one dispatches.
    kicks: AtomicU32,
}

impl<T> SlotQueue<T> {
    pub(crate) fn new() -> Self {
        Self { waiting: Mutex::new(VecDeque::new()), waiting_count: AtomicU32::new(0), kicks: AtomicU32::new(0) }
    }

    /// Starts `item` now, or behind the items that wait already.
    pub(crate) fn start_or_wait(&self, item: T, starter: &impl SlotStarter<T>) {
        if self.waiting_count.load(Acquire) == 0
            && let Some(slot) = starter.alloc_slot()
        {
            return starter.start(slot, item);
        }
        self.change(|waiting| waiting.push_back(item));
        self.dispatch(starter);
    }

    /// Starts waiting items as far as there are slots: on this thread, or on the one that
    /// dispatches already.
    pub(crate) fn dispatch(&self, starter: &impl SlotStarter<T>) {
        if self.kicks.fetch_add(1, AcqRel) > 0 {
            return;
        }
        let mut seen = 1;
        while seen > 0 {
            self.start_waiting(starter);
            seen = self.kicks.fetch_sub(seen, AcqRel) - seen;
        }
    }

    fn start_waiting(&self, starter: &impl SlotStarter<T>) {
        while self.waiting_count.load(Acquire) > 0 {
            let Some(slot) = starter.alloc_slot() else { return };
            match self.change(VecDeque::pop_front) {
                Some(item) => starter.start(slot, item),
                None => return starter.free_slot(slot),
            }
        }
    }

    fn change<R>(&self, f: impl FnOnce(&mut VecDeque<T>) -> R) -> R {
        let mut waiting = self.waiting.lock();
        let result = f(&mut waiting);
        self.waiting_count.store(waiting.len() as u32, Release);
        result
    }
}
