//! Completions are posted by one thread and reaped by another, more of them than the ring holds:
//! none is lost or torn, their order is kept, and the overflow flag is set exactly while CQEs wait
//! for room.

use super::super::{SubmitBaton, resize};
use super::Cq;
use alloc::sync::Arc;
use alloc::vec::Vec;
use loom::thread;
use uringlet_abi::{Cqe, cqe as flag};
use uringlet_sys::lock::Mutex;
use uringlet_sys::model::{self, ModelProgram};
use uringlet_sys::ring_memory::{Geometry, RingMemory};

/// The completion side of a ring: as in `RingState`, memory and queue are used under one lock.
struct Completions {
    memory: RingMemory,
    cq: Cq,
}

impl Completions {
    fn new() -> (Arc<Mutex<Self>>, ModelProgram) {
        let geometry = Geometry { sq_entries: 1, cq_entries: 2, sqe_shift: 6, cqe_shift: 4, has_sq_array: false };
        let memory = RingMemory::new(geometry).unwrap();
        let program = ModelProgram::new(&memory);
        (Arc::new(Mutex::new(Self { memory, cq: Cq::default() })), program)
    }

    /// A worker's completion.
    fn post(&mut self, n: u64) {
        self.cq.post(&self.memory, cqe(n));
        self.commit();
    }

    /// The same with a second half.
    fn post_big(&mut self, n: u64) {
        self.cq.post_big(&self.memory, cqe(n), extra(n));
        self.commit();
    }

    /// The program enters for the overflowed CQEs.
    fn flush(&mut self) {
        self.cq.flush_overflow(&self.memory);
        self.commit();
    }

    /// The program has the queue resized. Whether its CQEs had room.
    fn resize(&mut self, cq_entries: u32) -> bool {
        let new = RingMemory::new(Geometry { cq_entries, ..*self.memory.geometry() }).unwrap();
        let has_room = resize::move_queues(&mut self.memory, &self.cq, &SubmitBaton::new(0), new).is_ok();
        self.commit();
        has_room
    }

    /// Done at each release of the lock.
    fn commit(&mut self) {
        self.cq.publish(&self.memory);
        let program = ModelProgram::new(&self.memory);
        assert_eq!(program.sees_overflow(), self.cq.has_overflow());
    }
}

fn cqe(n: u64) -> Cqe {
    Cqe { user_data: n, res: n as i32, flags: n as u32 }
}

fn extra(n: u64) -> [u64; 2] {
    [n << 32, !n]
}

/// Sizes alternate, so that of two slots a CQE of two finds none, or only the last: it waits, and a
/// filler takes that slot.
#[test]
fn ring_of_both_sizes_tears_nothing_and_keeps_the_order() {
    const CQES: u64 = 3;
    for is_big in [[false, true, false], [true, false, true]] {
        let is_big = move |n: u64| is_big[n as usize - 1];
        model::check(3, move || {
            let (ring, mut program) = Completions::new();
            let poster = thread::spawn({
                let ring = Arc::clone(&ring);
                move || (1..=CQES).for_each(|n| if is_big(n) { ring.lock().post_big(n) } else { ring.lock().post(n) })
            });
            let mut reaped = Vec::new();
            while (reaped.len() as u64) < CQES {
                match program.reap_mixed() {
                    Some(cqe) => reaped.push(cqe),
                    None if program.sees_overflow() => ring.lock().flush(),
                    None => thread::yield_now(),
                }
            }
            poster.join().unwrap();
            let posted = (1..=CQES).map(|n| match is_big(n) {
                true => (Cqe { flags: n as u32 | flag::BIG, ..cqe(n) }, Some(extra(n))),
                false => (cqe(n), None),
            });
            assert_eq!(reaped, posted.collect::<Vec<_>>());
            assert!(program.reap_mixed().is_none() && !program.sees_overflow());
        });
    }
}

#[test]
fn overflowing_ring_loses_nothing_and_keeps_the_order() {
    const CQES: u64 = 4;
    model::check(3, || {
        let (ring, mut program) = Completions::new();
        let poster = thread::spawn({
            let ring = Arc::clone(&ring);
            move || (1..=CQES).for_each(|n| ring.lock().post(n))
        });
        let mut reaped = Vec::new();
        while (reaped.len() as u64) < CQES {
            match program.reap() {
                Some(cqe) => reaped.push(cqe),
                None if program.sees_overflow() => ring.lock().flush(),
                None => thread::yield_now(),
            }
        }
        poster.join().unwrap();
        assert_eq!(reaped, (1..=CQES).map(cqe).collect::<Vec<_>>());
        assert_eq!(program.reap(), None);
        assert!(!program.sees_overflow());
    });
}

/// A worker posts while the program, which reaps, has the queue resized: the CQEs before it are
/// copied, the others are posted into the new memory.
#[test]
fn resized_ring_loses_nothing_and_keeps_the_order() {
    const CQES: u64 = 3;
    for entries in [1, 4] {
        model::check(3, move || {
            let (ring, mut program) = Completions::new();
            let poster = thread::spawn({
                let ring = Arc::clone(&ring);
                move || (1..=CQES).for_each(|n| ring.lock().post(n))
            });
            let mut reaped = Vec::new();
            let mut is_resized = false;
            while (reaped.len() as u64) < CQES {
                match program.reap() {
                    Some(cqe) => reaped.push(cqe),
                    None if program.sees_overflow() => ring.lock().flush(),
                    None => thread::yield_now(),
                }
                if !is_resized && ring.lock().resize(entries) {
                    program.map_again(&ring.lock().memory);
                    is_resized = true;
                }
            }
            poster.join().unwrap();
            assert_eq!(reaped, (1..=CQES).map(cqe).collect::<Vec<_>>());
            assert!(is_resized && program.reap().is_none() && !program.sees_overflow());
        });
    }
}

#[test]
fn two_posters_without_overflow_need_no_enter() {
    model::check(2, || {
        let (ring, mut program) = Completions::new();
        let posters = [1, 2].map(|n| {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.lock().post(n))
        });
        let mut sum = 0;
        while sum < 3 {
            assert!(!program.sees_overflow());
            match program.reap() {
                Some(found) => {
                    assert_eq!(found, cqe(found.user_data));
                    sum += found.user_data;
                }
                None => thread::yield_now(),
            }
        }
        for poster in posters {
            poster.join().unwrap();
        }
    });
}
