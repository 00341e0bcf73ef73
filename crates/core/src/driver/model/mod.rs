//! Threads wait in enter(), others post, time goes on, and the watcher scans: no thread sleeps for
//! ever although its condition is true, and a thread drives all that is armed.
//!
//! These run the engine as it is, on the kernel of `uringlet_sys::model`.

mod waiters;
mod watcher;

use super::enter::{EnterArgs, enter};
use crate::ring::SubmitBaton;
use crate::state::WorkerPool;
use crate::state::{LockOwner, RINGS, Ring, RingState};
use uringlet_abi::{Cqe, GeteventsArg, Opcode, Sqe, Timespec, enter as flag, op_flags};
use uringlet_sys::fd::{EPOLLIN, EventFd, RingFd};
use uringlet_sys::model::ModelProgram;
use uringlet_sys::ring_memory::{Geometry, RingMemory};
use uringlet_sys::{UserPtr, io};

/// A ring with its program.
pub(crate) struct EngineModel {
    pub(crate) ring: &'static Ring,
    program: ModelProgram,
}

impl EngineModel {
    pub(crate) fn new() -> Self {
        let memory = RingMemory::new(Geometry { sq_entries: 2, cq_entries: 4, sqe_shift: 6, cqe_shift: 4, has_sq_array: false }).unwrap();
        let program = ModelProgram::new(&memory);
        let (number, fd) = RingFd::open().unwrap();
        io::close(number).unwrap();
        let (ring, generation) = RINGS.take().unwrap();
        let mut state = RingState::new(generation, memory, 0, WorkerPool::with_limits([0, 0]), fd);
        state.baton = Some(SubmitBaton::new(0));
        ring.open(state);
        Self { ring, program }
    }

    /// io_uring_enter(2) with one new SQE.
    fn submit(&mut self, sqe: &Sqe) {
        assert!(self.program.push(sqe));
        assert_eq!(enter(self.ring, EnterArgs { to_submit: 1, min_complete: 0, flags: 0, arg: UserPtr::NULL, arg_len: 8 }), Ok(1));
    }
}

impl Drop for EngineModel {
    fn drop(&mut self) {
        // Rings are for ever, and what is in them holds descriptors.
        drop(self.ring.lock(LockOwner::Worker).map(|guard| guard.end()));
    }
}

/// io_uring_enter(2): waits for `min` CQEs.
fn wait(ring: &'static Ring, min: u32) {
    enter(ring, EnterArgs { to_submit: 0, min_complete: min, flags: flag::GETEVENTS, arg: UserPtr::NULL, arg_len: 8 }).unwrap();
}

/// As [`wait`], in the long form; it may end without CQEs.
fn wait_with(ring: &'static Ring, min: u32, ext: &GeteventsArg) {
    let flags = flag::GETEVENTS | flag::EXT_ARG;
    let arg = UserPtr::new(core::ptr::from_ref(ext).addr());
    let _ = enter(ring, EnterArgs { to_submit: 0, min_complete: min, flags, arg, arg_len: size_of::<GeteventsArg>() });
}

/// A worker's completion.
fn post(ring: &'static Ring, user_data: u64) {
    ring.lock(LockOwner::Worker).unwrap().res.post(Cqe { user_data, res: 0, flags: 0 });
}

/// An SQE of a timeout at a time; lives while the SQE has not been submitted.
fn timeout(user_data: u64, at: &Timespec) -> Sqe {
    let addr = core::ptr::from_ref(at).addr() as u64;
    Sqe { opcode: Opcode::Timeout as u8, fd: -1, addr, len: 1, op_flags: op_flags::TIMEOUT_ABS, user_data, ..Sqe::default() }
}

fn at(ns: u64) -> Timespec {
    Timespec { tv_sec: 0, tv_nsec: ns as i64 }
}

/// An SQE that waits for an eventfd.
fn poll(user_data: u64, file: &EventFd) -> Sqe {
    Sqe { opcode: Opcode::PollAdd as u8, fd: file.number(), op_flags: EPOLLIN, user_data, ..Sqe::default() }
}
