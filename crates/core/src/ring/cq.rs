//! The completion queue, from the producer's side.
//!
//! Memory model: the engine stores CQEs, then releases the tail; the program acquires the tail,
//! reads CQEs, then releases the head, which the engine acquires before it writes into a slot
//! again. Only the engine writes the tail. The program writes the head, which may hold anything: it
//! is only used to compute the free slots, clamped to the ring's size.
//!
//! A full ring loses nothing: CQEs wait in `overflow`, in order, and `IORING_SQ_CQ_OVERFLOW` is
//! set.
//!
//! Checked by `model`.

#[cfg(all(test, loom))]
mod model;

use alloc::collections::VecDeque;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use uringlet_abi::{Cqe, sq_flags};
use uringlet_sys::ring_memory::{RingField, RingMemory};

/// The notifications due when the ring's lock is released.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CqNotify {
    /// CQEs were posted.
    pub(crate) any: bool,
    /// CQEs were deferred for the submitter.
    pub(crate) deferred: bool,
    /// Waiters must check again, however many CQEs they wait for.
    pub(crate) must_wake: bool,
    /// A posted CQE did not complete inline.
    pub(crate) is_async: bool,
}

impl CqNotify {
    /// Whether no notification is due.
    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        !(self.any | self.deferred | self.must_wake)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Cq {
    tail: u32,
    published: u32,
    overflow: VecDeque<Cqe>,
    pending_notify: CqNotify,
}

impl Cq {
    /// The tail, with the CQEs that are not yet published.
    #[inline]
    pub(crate) fn tail(&self) -> u32 {
        self.tail
    }

    /// CQEs that the program has not consumed, by its head.
    #[inline]
    pub(crate) fn ready(&self, memory: &RingMemory) -> u32 {
        // Acquire: pairs with the program's release of the head after it read the CQEs.
        let head = memory.word(RingField::CqHead).load(Acquire);
        self.tail.wrapping_sub(head).min(memory.geometry().cq_entries)
    }

    pub(crate) fn has_overflow(&self) -> bool {
        !self.overflow.is_empty()
    }

    /// Stores a CQE, behind those that overflowed before it.
    #[inline(always)]
    pub(crate) fn post(&mut self, memory: &RingMemory, cqe: Cqe) {
        self.pending_notify.any = true;
        if !self.overflow.is_empty() || self.ready(memory) == memory.geometry().cq_entries {
            self.overflow.push_back(cqe);
            memory.word(RingField::SqFlags).fetch_or(sq_flags::CQ_OVERFLOW, AcqRel);
            return;
        }
        self.store(memory, cqe);
    }

    #[inline(always)]
    fn store(&mut self, memory: &RingMemory, cqe: Cqe) {
        memory.store_cqe(self.tail, cqe);
        self.tail = self.tail.wrapping_add(1);
    }

    /// Moves overflowed CQEs into the ring as far as there is room.
    pub(crate) fn flush_overflow(&mut self, memory: &RingMemory) {
        if self.overflow.is_empty() {
            return;
        }
        while self.ready(memory) < memory.geometry().cq_entries {
            let Some(cqe) = self.overflow.pop_front() else { break };
            self.store(memory, cqe);
            self.pending_notify.any = true;
        }
        if self.overflow.is_empty() {
            memory.word(RingField::SqFlags).fetch_and(!sq_flags::CQ_OVERFLOW, AcqRel);
        }
        self.publish_tail(memory);
    }

    /// Makes the stored CQEs visible.
    #[inline]
    pub(crate) fn publish(&mut self, memory: &RingMemory) -> CqNotify {
        // Also when only the overflow grew: a program that has overwritten the tail gets the true
        // one.
        if self.pending_notify.any || self.tail != self.published {
            self.publish_tail(memory);
        }
        core::mem::take(&mut self.pending_notify)
    }

    #[inline]
    fn publish_tail(&mut self, memory: &RingMemory) {
        // Release: pairs with the program's acquire of the tail before it reads the CQEs.
        memory.word(RingField::CqTail).store(self.tail, Release);
        self.published = self.tail;
    }

    /// Another process may have posted: continues at its tail.
    pub(crate) fn resync_tail(&mut self, memory: &RingMemory) {
        self.tail = memory.word(RingField::CqTail).load(Acquire);
        self.published = self.tail;
    }

    /// A CQE was deferred for the submitter.
    pub(crate) fn note_deferred(&mut self) {
        self.pending_notify.deferred = true;
    }

    /// The next publication wakes every waiter.
    pub(crate) fn note_must_wake(&mut self) {
        self.pending_notify.must_wake = true;
    }

    /// A posted CQE did not complete inline.
    pub(crate) fn note_async(&mut self) {
        self.pending_notify.is_async = true;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::sync::atomic::Ordering::Relaxed;
    use uringlet_sys::ring_memory::Geometry;

    fn memory() -> RingMemory {
        RingMemory::new(Geometry { sq_entries: 2, cq_entries: 4, sqe_shift: 6, cqe_shift: 4, has_sq_array: true }).unwrap()
    }

    fn cqe(n: u64) -> Cqe {
        Cqe { user_data: n, res: n as i32, flags: 0 }
    }

    #[test]
    fn overflow_keeps_order_and_loses_nothing() {
        let m = memory();
        let mut cq = Cq::default();
        for n in 0..7 {
            cq.post(&m, cqe(n));
        }
        cq.publish(&m);
        assert_eq!(m.word(RingField::CqTail).load(Relaxed), 4);
        assert!(m.word(RingField::SqFlags).load(Relaxed) & sq_flags::CQ_OVERFLOW != 0);
        m.word(RingField::CqHead).store(2, Release);
        // There is room again, but the overflowed CQEs come first.
        cq.post(&m, cqe(7));
        cq.flush_overflow(&m);
        assert_eq!(cq.tail(), 6);
        m.word(RingField::CqHead).store(6, Release);
        cq.flush_overflow(&m);
        assert_eq!(cq.tail(), 8);
        assert_eq!(m.word(RingField::SqFlags).load(Relaxed) & sq_flags::CQ_OVERFLOW, 0);
    }

    #[test]
    fn overwritten_head_counts_as_a_full_ring() {
        let m = memory();
        let mut cq = Cq::default();
        m.word(RingField::CqHead).store(0xdead_beef, Release);
        for n in 0..10 {
            cq.post(&m, cqe(n));
        }
        assert_eq!(cq.tail(), 0);
        m.word(RingField::CqHead).store(0, Release);
        cq.flush_overflow(&m);
        assert_eq!(cq.tail(), 4);
    }
}
