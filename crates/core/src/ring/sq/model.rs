//! The program publishes SQEs, the engine consumes them, slots are used again: none is lost, torn
//! or consumed twice.

use super::SubmitBaton;
use alloc::vec::Vec;
use loom::thread;
use uringlet_abi::Sqe;
use uringlet_sys::model::{self, ModelProgram};
use uringlet_sys::ring_memory::{Geometry, RingMemory};

const SQES: u64 = 3;

/// Words at both ends of the SQE identify it.
fn sqe(n: u64) -> Sqe {
    Sqe { fd: n as i32, off: n, user_data: n, pad2: n, ..Sqe::default() }
}

fn publication(has_sq_array: bool) {
    let memory = RingMemory::new(Geometry { sq_entries: 2, cq_entries: 2, sqe_shift: 6, cqe_shift: 4, has_sq_array }).unwrap();
    let mut program = ModelProgram::new(&memory);
    let producer = thread::spawn(move || {
        for n in 1..=SQES {
            while !program.push(&sqe(n)) {
                thread::yield_now();
            }
        }
    });
    let mut baton = SubmitBaton::new(0);
    let mut taken = Vec::new();
    while (taken.len() as u64) < SQES {
        let pending = baton.pending(&memory);
        for _ in 0..pending {
            let index = baton.next(&memory).unwrap();
            taken.push(memory.sqe(index));
        }
        baton.publish(&memory);
        if pending == 0 {
            thread::yield_now();
        }
    }
    producer.join().unwrap();
    assert_eq!(taken, (1..=SQES).map(sqe).collect::<Vec<_>>());
    assert_eq!(baton.pending(&memory), 0);
}

#[test]
fn sqes_arrive_whole_once_and_in_order() {
    model::check(2, || publication(false));
}

#[test]
fn sqes_behind_an_index_array_arrive_whole_once_and_in_order() {
    model::check(2, || publication(true));
}
