//! The protocol: threads of any number of processes write, one thread reads, records are read in
//! the order of their tickets.
//!
//! A ticket selects a slot; a slot's state is one word of ticket, phase and, while it is written,
//! the writing process:
//!
//! ```text
//!   writers                                            reader, at ticket h
//!   t = tail
//!   slot of t is  FREE t       -> WRITING t, pid       FREE h        nothing there yet
//!                                 tail t -> t + 1      WRITING h     wait; if its process is gone: DEAD
//!                                 words                FULL h        words; FREE h + slots; h + 1
//!                                 WRITING t -> FULL t  DEAD          h + 1
//!                 WRITING t,
//!                 FULL t, DEAD -> tail t -> t + 1
//!                 older        -> no room
//! ```
//!
//! *Who has the slot*: the word that takes a slot names its process, so that no moment exists at
//! which a killed writer holds a ticket that nobody knows of. The tail is only a hint that all
//! writers advance: a writer that dies before it does so stops none.
//!
//! *A dead slot is not used again*. Had its process only been slow, it would write into a later
//! record. It finds that its slot is dead when it wants to fill it, and its record is lost.
//!
//! *No room*: the writer counts itself as a waiter, looks again, and sleeps; the reader frees
//! slots, then looks for waiters (both with a full fence in between). A writer that waits looks
//! for the tracer now and then.
//!
//! Tickets are 32 bits in the state: a writer that sleeps between its look at a slot and its
//! taking for just 2^32 records would take it wrongly. Checked by `model`.

#[cfg(all(test, loom))]
mod model;

use super::layout::{DROPS_WHEN_FULL, TraceHeader, TraceRecord, TraceSlot};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

#[cfg(loom)]
use crate::model::checker::sync::atomic::fence;
#[cfg(not(loom))]
use core::sync::atomic::fence;

const PHASE: u64 = 3;
const FREE: u64 = 0;
const WRITING: u64 = 1;
const FULL: u64 = 2;
const DEAD: u64 = 3;
/// The thread that owned a robust futex has died (`FUTEX_OWNER_DIED`).
const OWNER_DIED: u32 = 1 << 30;

/// A slot's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TraceSlotState(u64);

impl TraceSlotState {
    const fn new(ticket: u64, phase: u64, pid: u32) -> Self {
        Self(ticket << 32 | (pid as u64) << 2 | phase)
    }

    const fn phase(self) -> u64 {
        self.0 & PHASE
    }

    /// Whether it is of this ticket, in any phase.
    const fn is_of(self, ticket: u64) -> bool {
        self.0 >> 32 == ticket & 0xffff_ffff
    }

    const fn pid(self) -> u32 {
        (self.0 >> 2) as u32 & 0x3fff_ffff
    }
}

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    Stored,
    /// It is counted as dropped.
    Dropped,
    /// There is no tracer any more.
    NoReader,
}

/// Both ends of a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct TraceQueue<'m> {
    header: &'m TraceHeader,
    /// A power of two.
    slots: &'m [TraceSlot],
}

impl<'m> TraceQueue<'m> {
    pub(super) const fn new(header: &'m TraceHeader, slots: &'m [TraceSlot]) -> Self {
        Self { header, slots }
    }

    /// Prepares new memory.
    pub(super) fn init(self) {
        for (ticket, slot) in (0_u64..).zip(self.slots) {
            slot.state.store(TraceSlotState::new(ticket, FREE, 0).0, Relaxed);
        }
    }

    fn slot(self, ticket: u64) -> &'m TraceSlot {
        &self.slots[ticket as usize & (self.slots.len() - 1)]
    }

    /// Whether the tracer is there.
    pub(super) fn has_reader(self) -> bool {
        let owner = self.header.owner.load(Relaxed);
        owner != 0 && owner & OWNER_DIED == 0
    }

    /// Stores a record of this process. `wait` sleeps until the word differs, or for a while.
    pub(super) fn push(self, pid: u32, record: &TraceRecord, wait: impl Fn(&crate::sync::AtomicU32, u32)) -> Pushed {
        loop {
            if !self.has_reader() {
                return Pushed::NoReader;
            }
            if let Some(ticket) = self.take_slot(pid) {
                return self.fill(ticket, pid, record);
            }
            if self.header.flags.load(Relaxed) & DROPS_WHEN_FULL != 0 {
                self.header.drops.fetch_add(1, Relaxed);
                return Pushed::Dropped;
            }
            self.wait_for_room(&wait);
        }
    }

    /// Takes the next slot. `None`: there is no room.
    fn take_slot(self, pid: u32) -> Option<u64> {
        let tail = &self.header.tail.0;
        loop {
            // Acquire: with the tail, the states behind it are seen.
            let ticket = tail.load(Acquire);
            let slot = self.slot(ticket);
            let state = TraceSlotState(slot.state.load(Acquire));
            let mut is_taken = false;
            if state == TraceSlotState::new(ticket, FREE, 0) {
                let mine = TraceSlotState::new(ticket, WRITING, pid);
                is_taken = slot.state.compare_exchange(state.0, mine.0, AcqRel, Relaxed).is_ok();
            } else if state.phase() != DEAD && !state.is_of(ticket) {
                // Of the round before, or of a later one if the tail has advanced meanwhile.
                if tail.load(Acquire) == ticket {
                    return None;
                }
                continue;
            }
            // Another writer may have advanced it.
            let _ = tail.compare_exchange(ticket, ticket.wrapping_add(1), AcqRel, Relaxed);
            if is_taken {
                return Some(ticket);
            }
        }
    }

    fn fill(self, ticket: u64, pid: u32, record: &TraceRecord) -> Pushed {
        let slot = self.slot(ticket);
        for (word, value) in slot.words.iter().zip(record.to_words()) {
            word.store(value, Relaxed);
        }
        let (mine, full) = (TraceSlotState::new(ticket, WRITING, pid), TraceSlotState::new(ticket, FULL, 0));
        // Release: pairs with the reader's acquire, before it reads the words.
        match slot.state.compare_exchange(mine.0, full.0, Release, Relaxed) {
            Ok(_) => Pushed::Stored,
            Err(_) => {
                self.header.drops.fetch_add(1, Relaxed);
                Pushed::Dropped
            }
        }
    }

    fn has_room(self) -> bool {
        let ticket = self.header.tail.0.load(Acquire);
        let state = TraceSlotState(self.slot(ticket).state.load(Acquire));
        state.phase() == DEAD || state.is_of(ticket) || self.header.tail.0.load(Acquire) != ticket
    }

    fn wait_for_room(self, wait: &impl Fn(&crate::sync::AtomicU32, u32)) {
        let seen = self.header.room_seq.load(Acquire);
        self.header.waiters.fetch_add(1, Relaxed);
        fence(SeqCst);
        if !self.has_room() {
            wait(&self.header.room_seq, seen);
        }
        self.header.waiters.fetch_sub(1, Relaxed);
    }

    /// Takes the record of ticket `head`, if it is there. Then the reader goes on with the next.
    pub(super) fn pop(self, head: &mut u64) -> Option<TraceRecord> {
        loop {
            let slot = self.slot(*head);
            let state = TraceSlotState(slot.state.load(Acquire));
            match state.phase() {
                FULL if state.is_of(*head) => {
                    let words = core::array::from_fn(|n| slot.words[n].load(Relaxed));
                    let free = TraceSlotState::new(head.wrapping_add(self.slots.len() as u64), FREE, 0);
                    // Release: a writer that finds it free writes after these loads.
                    slot.state.store(free.0, Release);
                    *head = head.wrapping_add(1);
                    return Some(TraceRecord::from_words(&words));
                }
                // Not beyond the tail: all slots may be dead.
                DEAD if self.header.tail.0.load(Acquire) != *head => *head = head.wrapping_add(1),
                _ => return None,
            }
        }
    }

    /// The process that has taken the slot of ticket `head` and has not filled it.
    pub(super) fn writer_of(self, head: u64) -> Option<u32> {
        let state = TraceSlotState(self.slot(head).state.load(Acquire));
        (state.phase() == WRITING && state.is_of(head)).then(|| state.pid())
    }

    /// Gives up the unfinished record of ticket `head`: its process is gone.
    pub(super) fn bury(self, head: u64) {
        let slot = self.slot(head);
        let state = TraceSlotState(slot.state.load(Acquire));
        if state.phase() == WRITING && state.is_of(head) {
            let _ = slot.state.compare_exchange(state.0, TraceSlotState::new(head, DEAD, 0).0, AcqRel, Relaxed);
            // The writer may have died before it did so.
            let _ = self.header.tail.0.compare_exchange(head, head.wrapping_add(1), AcqRel, Relaxed);
        }
    }

    /// The reader has freed slots. Returns whether writers wait, for `wake` of the word.
    pub(super) fn announce_room(self) -> bool {
        fence(SeqCst);
        if self.header.waiters.load(Relaxed) == 0 {
            return false;
        }
        self.header.room_seq.fetch_add(1, Release);
        true
    }
}
