//! The submission queue, from the consumer's side.
//!
//! Memory model: the program writes SQEs, then releases the tail; we acquire the tail, copy each SQE once, then release
//! the head, after which the program may use the slot again. The head is ours alone: what the program scribbles over
//! it is overwritten. Where processes share the ring, it is what the last of them left there.
//!
//! Checked by `model`.

#[cfg(all(test, loom))]
mod model;

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use uringlet_sys::ring_memory::{RingField, RingMemory};

/// The right to consume SQEs of a ring: one value a ring, moved to whoever submits, back when done.
///
/// It cannot be cloned, so two submitters cannot be written.
#[derive(Debug)]
pub(crate) struct SubmitBaton {
    head: u32,
}

impl SubmitBaton {
    /// The baton of a new ring.
    pub(crate) fn new() -> Self {
        Self { head: 0 }
    }

    /// SQEs that the program has published and nobody has consumed.
    #[inline]
    pub(crate) fn pending(&self, memory: &RingMemory) -> u32 {
        // Acquire: pairs with the program's release of the tail after it wrote the SQEs.
        let tail = memory.word(RingField::SqTail).load(Acquire);
        tail.wrapping_sub(self.head).min(memory.geometry().sq_entries)
    }

    /// The index of the next SQE, which the caller copies at once (into its place: what was stored a moment ago is slow to
    /// copy again); `None` when its place in the SQ array names none: it is dropped, and counted.
    #[inline(always)]
    pub(crate) fn next(&mut self, memory: &RingMemory) -> Option<u32> {
        let geometry = memory.geometry();
        let at = self.head;
        self.head = self.head.wrapping_add(1);
        let index = if geometry.has_sq_array { memory.sq_array(at) } else { at & (geometry.sq_entries - 1) };
        if index >= geometry.sq_entries {
            memory.word(RingField::SqDropped).fetch_add(1, Relaxed);
            return None;
        }
        Some(index)
    }

    /// Another process may have submitted: goes on behind that. Whether there is anything.
    #[cold]
    pub(crate) fn resync_head(&mut self, memory: &RingMemory) -> bool {
        self.head = memory.word(RingField::SqHead).load(Acquire);
        self.pending(memory) > 0
    }

    /// The program may use the consumed slots again.
    #[inline]
    pub(crate) fn publish(&self, memory: &RingMemory) {
        // Release: pairs with the program's acquire of the head before it writes into a slot.
        memory.word(RingField::SqHead).store(self.head, Release);
    }
}
