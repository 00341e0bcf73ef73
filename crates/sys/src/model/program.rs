//! The program's side of a ring, as liburing implements it.

use crate::ring_memory::{RingField, RingMemory};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use uringlet_abi::{Cqe, Sqe, cqe, sq_flags};

/// A program with a ring's memory mapped.
#[derive(Debug)]
pub struct ModelProgram {
    memory: RingMemory,
    sq_tail: u32,
    cq_head: u32,
}

impl ModelProgram {
    /// Maps the memory of a new ring.
    #[must_use]
    pub fn new(memory: &RingMemory) -> Self {
        Self { memory: memory.mapped_again(), sq_tail: 0, cq_head: 0 }
    }

    /// Maps the memory of a ring that was resized.
    pub fn map_again(&mut self, memory: &RingMemory) {
        self.memory = memory.mapped_again();
    }

    /// Publishes an SQE; `false` if the SQ is full.
    pub fn push(&mut self, sqe: &Sqe) -> bool {
        let entries = self.memory.geometry().sq_entries;
        // Pairs with the engine's release of the head after it copied the SQE.
        let head = self.memory.word(RingField::SqHead).load(Acquire);
        if self.sq_tail.wrapping_sub(head) == entries {
            return false;
        }
        self.memory.write_sqe(self.sq_tail, self.sq_tail & (entries - 1), sqe);
        self.sq_tail = self.sq_tail.wrapping_add(1);
        // Pairs with the engine's acquire of the tail before it copies the SQE.
        self.memory.word(RingField::SqTail).store(self.sq_tail, Release);
        true
    }

    /// Takes the next CQE, if there is one.
    pub fn reap(&mut self) -> Option<Cqe> {
        // Pairs with the engine's release of the tail after it stored the CQE.
        if self.memory.word(RingField::CqTail).load(Acquire) == self.cq_head {
            return None;
        }
        let cqe = self.memory.read_cqe(self.cq_head);
        self.consume(1);
        Some(cqe)
    }

    /// As [`reap`](Self::reap), from a ring with CQEs of both sizes: with the second half of a CQE
    /// of 32 bytes. Fillers are skipped.
    pub fn reap_mixed(&mut self) -> Option<(Cqe, Option<[u64; 2]>)> {
        loop {
            // As in `reap`.
            let tail = self.memory.word(RingField::CqTail).load(Acquire);
            if tail == self.cq_head {
                return None;
            }
            let first = self.memory.read_cqe(self.cq_head);
            if first.flags & cqe::SKIP != 0 {
                self.consume(1);
                continue;
            }
            if first.flags & cqe::BIG == 0 {
                self.consume(1);
                return Some((first, None));
            }
            assert!(tail.wrapping_sub(self.cq_head) >= 2, "both halves are published at once");
            let second = self.memory.read_cqe(self.cq_head.wrapping_add(1));
            self.consume(2);
            return Some((first, Some([second.user_data, u64::from(second.res as u32) | u64::from(second.flags) << 32])));
        }
    }

    fn consume(&mut self, slots: u32) {
        self.cq_head = self.cq_head.wrapping_add(slots);
        // Pairs with the engine's acquire of the head before it stores into the slot again.
        self.memory.word(RingField::CqHead).store(self.cq_head, Release);
    }

    /// Whether the ring asks to be entered for CQEs that had no room.
    #[must_use]
    pub fn sees_overflow(&self) -> bool {
        self.memory.word(RingField::SqFlags).load(Relaxed) & sq_flags::CQ_OVERFLOW != 0
    }
}
