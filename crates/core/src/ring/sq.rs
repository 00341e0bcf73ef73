//! The submission queue, from the consumer's side.
//!
//! Memory model: the program writes SQEs, then releases the tail; the engine acquires the tail,
//! copies each SQE once, then releases the head, after which the program may use the slot again.
//! Only the engine writes the head; a value that the program stores there is overwritten. If
//! processes share the ring, the head is the value that the last of them left.
//!
//! Checked by `model`.

#[cfg(all(test, loom))]
mod model;

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use uringlet_abi::setup;
use uringlet_sys::Errno;
use uringlet_sys::ring_memory::{RingField, RingMemory};

/// The right to consume SQEs of a ring: one value a ring, moved to the thread that submits, and
/// back.
///
/// It cannot be cloned, so there is one submitter at a time.
#[derive(Debug)]
pub(crate) struct SubmitBaton {
    head: u32,
    /// `IORING_SETUP_SQ_REWIND`: each submission begins with the first SQE, and head and tail of
    /// the shared memory are not used.
    rewinds: bool,
}

impl SubmitBaton {
    /// The baton of a new ring with these `IORING_SETUP_*`.
    pub(crate) fn new(flags: u32) -> Self {
        Self { head: 0, rewinds: flags & setup::SQ_REWIND != 0 }
    }

    /// A submission begins: the SQEs that it may consume.
    #[inline]
    pub(crate) fn start(&mut self, memory: &RingMemory) -> u32 {
        if self.rewinds {
            self.head = 0;
            return memory.geometry().sq_entries;
        }
        self.pending(memory)
    }

    /// SQEs that the program has published and the engine has not consumed.
    #[inline]
    pub(crate) fn pending(&self, memory: &RingMemory) -> u32 {
        // Acquire: pairs with the program's release of the tail after it wrote the SQEs.
        let tail = memory.word(RingField::SqTail).load(Acquire);
        tail.wrapping_sub(self.head).min(memory.geometry().sq_entries)
    }

    /// The index of the next SQE, which the caller copies at once and only once (data that was just
    /// stored is slow to load). `None`: its entry in the SQ array is invalid; it is dropped and
    /// counted.
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

    /// The SQE that was just taken has a second half in the next entry.
    #[cold]
    pub(crate) fn skip(&mut self) {
        self.head = self.head.wrapping_add(1);
    }

    /// Copies the SQEs that are not consumed to new memory, by their positions: the SQ array there
    /// is for the program to fill.
    ///
    /// # Errors
    /// `EOVERFLOW`: there is no room for them.
    pub(crate) fn copy_to(&self, from: &RingMemory, to: &RingMemory) -> Result<(), Errno> {
        // Acquire: as in `pending`.
        let tail = from.word(RingField::SqTail).load(Acquire);
        if self.rewinds {
            return Ok(());
        }
        let pending = tail.wrapping_sub(self.head);
        if pending > to.geometry().sq_entries {
            return Err(Errno::EOVERFLOW);
        }
        (0..pending).for_each(|i| to.copy_sqe(from, self.head.wrapping_add(i)));
        to.word(RingField::SqTail).store(tail, Relaxed);
        self.publish(to);
        Ok(())
    }

    /// Another process may have submitted: continues at its head. Whether SQEs are pending.
    #[cold]
    pub(crate) fn resync_head(&mut self, memory: &RingMemory) -> bool {
        if self.rewinds {
            return true;
        }
        self.head = memory.word(RingField::SqHead).load(Acquire);
        self.pending(memory) > 0
    }

    /// The program may use the consumed slots again.
    #[inline]
    pub(crate) fn publish(&self, memory: &RingMemory) {
        if self.rewinds {
            return;
        }
        // Release: pairs with the program's acquire of the head before it writes into a slot.
        memory.word(RingField::SqHead).store(self.head, Release);
    }
}
