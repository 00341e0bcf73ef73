//! The completion queue, from the producer's side.
//!
//! Memory model: the engine stores CQEs, then releases the tail; the program acquires the tail,
//! reads CQEs, then releases the head, which the engine acquires before it writes into a slot
//! again. Only the engine writes the tail. The program writes the head, which may hold anything: it
//! is only used to compute the free slots, clamped to the ring's size.
//!
//! On a ring of both sizes (`IORING_SETUP_CQE_MIXED`) a CQE of 32 bytes takes two slots, one behind
//! the other. If only the last slot is left before the queue wraps, a filler (`F_SKIP`) goes there.
//!
//! A full ring loses nothing: CQEs wait in `overflow`, in order, and `IORING_SQ_CQ_OVERFLOW` is
//! set.
//!
//! A ring that is resized gets other memory under its lock (`register::resize`): whoever posts
//! before it has posted into the former memory, from which the CQEs are copied, and whoever posts
//! after it finds the new one. Positions stay what they are; only the mask changes. The program
//! must not reap meanwhile, since its head is read once.
//!
//! Checked by `model`.

#[cfg(all(test, loom))]
mod model;

use alloc::collections::VecDeque;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use uringlet_abi::{Cqe, cqe, sq_flags};
use uringlet_sys::Errno;
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

/// The second half of a 32-byte CQE.
pub(crate) type CqeExtra = [u64; 2];

/// A CQE that is not in the ring yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitingCqe {
    pub(crate) cqe: Cqe,
    /// None: it has 16 bytes, or the second half is zero because all have 32.
    pub(crate) extra: Option<CqeExtra>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Cq {
    tail: u32,
    published: u32,
    overflow: VecDeque<WaitingCqe>,
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
            return self.wait_for_room(memory, WaitingCqe { cqe, extra: None });
        }
        self.store(memory, cqe);
    }

    /// As [`post`](Self::post), for a CQE with a second half: the ring has CQEs of 32 bytes, or of
    /// both sizes.
    #[cold]
    pub(crate) fn post_big(&mut self, memory: &RingMemory, mut cqe: Cqe, extra: CqeExtra) {
        self.pending_notify.any = true;
        if memory.geometry().cqe_shift == 4 {
            cqe.flags |= cqe::BIG;
        }
        if !self.overflow.is_empty() || !self.store_big(memory, cqe, extra) {
            self.wait_for_room(memory, WaitingCqe { cqe, extra: Some(extra) });
        }
    }

    /// How many CQEs with a second half there is room for.
    pub(crate) fn big_room(&self, memory: &RingMemory) -> u32 {
        let entries = memory.geometry().cq_entries;
        let free = if self.has_overflow() { 0 } else { entries - self.ready(memory) };
        if memory.geometry().cqe_shift != 4 {
            return free;
        }
        let until_end = (entries - (self.tail & (entries - 1))).min(free);
        until_end / 2 + (free - until_end) / 2
    }

    /// As [`post`](Self::post), as if there were no room.
    pub(crate) fn post_behind(&mut self, memory: &RingMemory, cqe: Cqe) {
        self.pending_notify.any = true;
        self.wait_for_room(memory, WaitingCqe { cqe, extra: None });
    }

    #[cold]
    fn wait_for_room(&mut self, memory: &RingMemory, waiting: WaitingCqe) {
        self.overflow.push_back(waiting);
        memory.word(RingField::SqFlags).fetch_or(sq_flags::CQ_OVERFLOW, AcqRel);
    }

    /// Whether there was room.
    fn store_big(&mut self, memory: &RingMemory, cqe: Cqe, extra: CqeExtra) -> bool {
        let entries = memory.geometry().cq_entries;
        let slots = if memory.geometry().cqe_shift == 4 { 2 } else { 1 };
        let wraps = slots == 2 && self.tail & (entries - 1) == entries - 1;
        if wraps && self.ready(memory) < entries {
            self.store(memory, Cqe { user_data: 0, res: 0, flags: cqe::SKIP });
        }
        if self.ready(memory) + slots > entries || slots == 2 && self.tail & (entries - 1) == entries - 1 {
            return false;
        }
        let first = self.tail;
        self.store(memory, cqe);
        memory.store_cqe_extra(first, extra);
        self.tail = first.wrapping_add(slots);
        true
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
        while let Some(&WaitingCqe { cqe, extra }) = self.overflow.front() {
            if !self.store_waiting(memory, cqe, extra) {
                break;
            }
            self.overflow.pop_front();
            self.pending_notify.any = true;
        }
        if self.overflow.is_empty() {
            memory.word(RingField::SqFlags).fetch_and(!sq_flags::CQ_OVERFLOW, AcqRel);
        }
        self.publish_tail(memory);
    }

    /// Whether there was room.
    fn store_waiting(&mut self, memory: &RingMemory, cqe: Cqe, extra: Option<CqeExtra>) -> bool {
        if let Some(extra) = extra {
            return self.store_big(memory, cqe, extra);
        }
        let has_room = self.ready(memory) < memory.geometry().cq_entries;
        if has_room {
            self.store(memory, cqe);
        }
        has_room
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

    /// Copies the CQEs that the program has not consumed to new memory.
    ///
    /// # Errors
    /// `EOVERFLOW`: there is no room for them.
    pub(crate) fn copy_to(&self, from: &RingMemory, to: &RingMemory) -> Result<(), Errno> {
        let entries = to.geometry().cq_entries;
        // Acquire: pairs with the program's release of the head, as in `ready`.
        let head = from.word(RingField::CqHead).load(Acquire);
        let waiting = self.tail.wrapping_sub(head);
        if waiting > entries || waiting > from.geometry().cq_entries {
            return Err(Errno::EOVERFLOW);
        }
        for at in (0..waiting).map(|i| head.wrapping_add(i)) {
            let is_big = from.geometry().cqe_shift == 4 && from.cqe_flags(at) & cqe::BIG != 0;
            if is_big && at & (entries - 1) == entries - 1 {
                // Its two halves would not be one behind the other.
                return Err(Errno::EOVERFLOW);
            }
            to.copy_cqe(from, at);
        }
        to.word(RingField::CqHead).store(head, Relaxed);
        // Release: as in `publish_tail`.
        to.word(RingField::CqTail).store(self.tail, Release);
        Ok(())
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
    fn big_cqes_do_not_wrap_and_keep_their_place() {
        let m = memory();
        let mut cq = Cq::default();
        let sent = |cq: &mut Cq, n| cq.post_big(&m, cqe(n), [n, n]);
        (0..3).for_each(|n| cq.post(&m, cqe(n)));
        m.word(RingField::CqHead).store(3, Release);
        sent(&mut cq, 3);
        // The filler and two slots.
        assert_eq!((cq.tail(), cq.has_overflow()), (6, false));
        sent(&mut cq, 6);
        cq.post(&m, cqe(7));
        assert_eq!((cq.tail(), cq.has_overflow()), (6, true));
        m.word(RingField::CqHead).store(6, Release);
        cq.flush_overflow(&m);
        assert_eq!((cq.tail(), cq.has_overflow()), (9, false));
    }

    #[test]
    fn room_for_big_cqes_is_what_they_take() {
        for (shift, posted, consumed) in [(4, 0, 0), (4, 1, 0), (4, 3, 3), (4, 3, 2), (4, 4, 1), (4, 7, 7), (5, 3, 1), (5, 4, 0)] {
            let m = memory_of(4, shift);
            let mut cq = Cq::default();
            for n in 0..posted {
                m.word(RingField::CqHead).store(consumed.min(n), Release);
                cq.post(&m, cqe(n.into()));
            }
            m.word(RingField::CqHead).store(consumed, Release);
            let room = cq.big_room(&m);
            for _ in 0..room {
                cq.post_big(&m, cqe(0), [0, 0]);
            }
            assert!(!cq.has_overflow(), "{shift} {posted} {consumed}");
            cq.post_big(&m, cqe(0), [0, 0]);
            assert_eq!((cq.has_overflow(), cq.big_room(&m)), (true, 0), "{shift} {posted} {consumed}");
        }
    }

    fn memory_of(cq_entries: u32, cqe_shift: u32) -> RingMemory {
        RingMemory::new(Geometry { sq_entries: 2, cq_entries, sqe_shift: 6, cqe_shift, has_sq_array: true }).unwrap()
    }

    #[test]
    fn resized_cqes_keep_their_positions_where_the_counters_wrap() {
        for (before, after, shift) in [(4, 8, 4), (8, 4, 4), (4, 16, 5), (16, 4, 5)] {
            let (old, new) = (memory_of(before, shift), memory_of(after, shift));
            let mut cq = Cq { tail: u32::MAX - 1, ..Cq::default() };
            old.word(RingField::CqHead).store(u32::MAX - 1, Release);
            (0..4_u32).for_each(|n| cq.post(&old, Cqe { user_data: n.into(), res: 0, flags: n + 7 }));
            cq.copy_to(&old, &new).unwrap();
            assert_eq!([0, 1, 2, 3].map(|n| new.cqe_flags((u32::MAX - 1).wrapping_add(n))), [7, 8, 9, 10]);
            assert_eq!(new.word(RingField::CqHead).load(Relaxed), u32::MAX - 1);
            assert_eq!(new.word(RingField::CqTail).load(Relaxed), 2);
        }
    }

    #[test]
    fn a_queue_without_room_takes_no_cqes() {
        let (old, new) = (memory_of(8, 4), memory_of(2, 4));
        let mut cq = Cq::default();
        (0..3).for_each(|n| cq.post(&old, cqe(n)));
        assert_eq!(cq.copy_to(&old, &new), Err(Errno::EOVERFLOW));
        old.word(RingField::CqHead).store(1, Release);
        assert_eq!(cq.copy_to(&old, &new), Ok(()));
        old.word(RingField::CqHead).store(0xdead_beef, Release);
        assert_eq!(cq.copy_to(&old, &memory_of(16, 4)), Err(Errno::EOVERFLOW));
    }

    #[test]
    fn a_big_cqe_is_not_torn_by_a_smaller_queue() {
        let (old, new) = (memory_of(8, 4), memory_of(2, 4));
        let mut cq = Cq::default();
        cq.post(&old, cqe(0));
        old.word(RingField::CqHead).store(1, Release);
        cq.post_big(&old, cqe(1), [1, 1]);
        assert_eq!(cq.copy_to(&old, &new), Err(Errno::EOVERFLOW));
        assert_eq!(cq.copy_to(&old, &memory_of(4, 4)), Ok(()));
    }

    #[test]
    fn overwritten_head_counts_as_a_full_ring() {
        let m = memory();
        let mut cq = Cq::default();
        m.word(RingField::CqHead).store(0xdead_beef, Release);
        for n in 0..10 {
            cq.post(&m, cqe(n));
            cq.post_big(&m, cqe(n), [0, 0]);
        }
        assert_eq!(cq.tail(), 0);
        m.word(RingField::CqHead).store(0, Release);
        cq.flush_overflow(&m);
        assert_eq!(cq.tail(), 4);
    }
}
