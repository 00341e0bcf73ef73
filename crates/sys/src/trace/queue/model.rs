//! Writers and a reader on few slots: each record is read once, whole, each writer's in its order,
//! and no writer sleeps past room.

use super::{Pushed, TraceQueue};
use crate::futex::{futex_wait, futex_wake};
use crate::model;
use crate::sync::{AtomicU32, AtomicU64};
use crate::trace::layout::{DROPS_WHEN_FULL, PAYLOAD_WORDS, TraceHeader, TraceRecord, TraceSlot};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use loom::thread;
use std::sync::Arc;
use std::vec::Vec;

struct Memory {
    header: TraceHeader,
    slots: Vec<TraceSlot>,
}

impl Memory {
    fn new(slots: usize, flags: u32) -> Arc<Self> {
        let slot = || TraceSlot { state: AtomicU64::new(0), words: core::array::from_fn(|_| AtomicU64::new(0)) };
        let memory = Self { header: TraceHeader::default(), slots: (0..slots).map(|_| slot()).collect() };
        memory.header.flags.store(flags, Relaxed);
        memory.header.owner.store(1, Relaxed);
        memory.queue().init();
        Arc::new(memory)
    }

    fn queue(&self) -> TraceQueue<'_> {
        TraceQueue::new(&self.header, &self.slots)
    }

    fn push(&self, pid: u32, n: u64) -> Pushed {
        let record = TraceRecord { pid, ticks: n, payload: [n; PAYLOAD_WORDS], ..TraceRecord::default() };
        let wait = |word: &AtomicU32, seen| {
            // It looks again, whatever has ended the wait.
            let _ = futex_wait(word, seen, u64::MAX);
        };
        self.queue().push(pid, &record, wait)
    }

    /// Reads until `wanted` records have come.
    fn read(&self, wanted: usize) -> Vec<(u32, u64)> {
        let (mut head, mut read) = (0, Vec::new());
        while read.len() < wanted {
            if let Some(record) = self.queue().pop(&mut head) {
                assert_eq!(record.payload, [record.ticks; PAYLOAD_WORDS]);
                read.push((record.pid, record.ticks));
                if self.queue().announce_room() {
                    futex_wake(&self.header.room_seq, u32::MAX);
                }
            } else {
                // The reader's question who keeps it takes no record.
                let _ = self.queue().writer_of(head);
                thread::yield_now();
            }
        }
        assert_eq!(self.queue().pop(&mut head), None);
        read
    }
}

#[test]
fn records_are_read_once_and_in_order_by_a_reader_that_makes_room() {
    model::check(2, || {
        let memory = Memory::new(1, 0);
        let writer = thread::spawn({
            let memory = Arc::clone(&memory);
            move || [1, 2].map(|n| memory.push(1, n))
        });
        assert_eq!(memory.read(2), [(1, 1), (1, 2)]);
        assert_eq!(writer.join().unwrap(), [Pushed::Stored; 2]);
    });
}

#[test]
fn two_writers_share_no_slot() {
    model::check(2, || {
        let memory = Memory::new(2, 0);
        let writer = thread::spawn({
            let memory = Arc::clone(&memory);
            move || memory.push(1, 1)
        });
        assert_eq!(memory.push(2, 2), Pushed::Stored);
        let mut read = memory.read(2);
        read.sort_unstable();
        assert_eq!((read, writer.join().unwrap()), (Vec::from([(1, 1), (2, 2)]), Pushed::Stored));
    });
}

#[test]
fn a_full_queue_drops_what_it_counts() {
    model::check(2, || {
        let memory = Memory::new(1, DROPS_WHEN_FULL);
        let writer = thread::spawn({
            let memory = Arc::clone(&memory);
            move || memory.push(1, 1)
        });
        let pushed = [memory.push(2, 2), writer.join().unwrap()];
        let stored = pushed.iter().filter(|&&pushed| pushed == Pushed::Stored).count();
        assert_eq!(memory.read(1).len(), stored);
        assert_eq!(memory.header.drops.load(SeqCst), 1);
    });
}

#[test]
fn a_writer_that_was_given_up_harms_no_later_record() {
    model::check(2, || {
        let memory = Memory::new(2, 0);
        let ticket = memory.queue().take_slot(1).unwrap();
        let slow = thread::spawn({
            let memory = Arc::clone(&memory);
            move || memory.queue().fill(ticket, 1, &TraceRecord { ticks: 9, payload: [9; PAYLOAD_WORDS], ..TraceRecord::default() })
        });
        let (mut head, mut read) = (0, Vec::new());
        let mut take = |head: &mut u64| {
            if let Some(record) = memory.queue().pop(head) {
                assert_eq!(record.payload, [record.ticks; PAYLOAD_WORDS]);
                read.push(record.ticks);
            } else if let Some(pid) = memory.queue().writer_of(*head) {
                assert_eq!(pid, 1);
                memory.queue().bury(*head);
            }
        };
        take(&mut head);
        for n in 1..=3 {
            assert_eq!(memory.push(2, n), Pushed::Stored);
            take(&mut head);
            take(&mut head);
        }
        let was_read = slow.join().unwrap() == Pushed::Stored;
        let all: &[u64] = if was_read { &[9, 1, 2, 3] } else { &[1, 2, 3] };
        assert_eq!(read, all);
    });
}
