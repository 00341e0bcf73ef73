//! The program closes a number or puts a file onto it, while the engine uses it, closes it or lets
//! its own descriptor move: nothing reaches a file that it is not meant for, and the program's file
//! stays open.
//!
//! The descriptors are real. A file is told by the bytes in it: each is a pipe.

use super::ENGINE;
use crate::driver::model::EngineModel;
use crate::ops::{PrepCx, nop};
use crate::request::{FileTarget, Outcome, ReqId, Request, Stage};
use crate::state::{LockOwner, Ring};
use crate::submit::{complete_op, take_op};
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use uringlet_abi::Sqe;
use uringlet_sys::fd::{EPOLLERR, EngineFd};
use uringlet_sys::thread::set_in_system_call;
use uringlet_sys::{fd_table, io, model};

/// A thread of the engine, as it is known to the ring.
const WORKER: u32 = 1;

/// A pipe with one byte in it.
struct MarkedPipe {
    reader: i32,
    writer: i32,
}

impl MarkedPipe {
    fn new(mark: u8) -> Self {
        fd_table::init().unwrap();
        let [reader, writer] = io::pipe(io::O_CLOEXEC | io::O_NONBLOCK).unwrap();
        assert_eq!(io::write(writer, io::ptr_of_slice(&[mark]), 1), Ok(1));
        Self { reader, writer }
    }
}

impl Drop for MarkedPipe {
    fn drop(&mut self) {
        let _ = io::close(self.reader);
        let _ = io::close(self.writer);
    }
}

fn read_mark(number: i32) -> Option<u8> {
    let mut mark = 0_u8;
    (io::read(number, io::ptr_of_mut(&mut mark), 1) == Ok(1)).then_some(mark)
}

/// The program's dup2(2).
fn replace(number: i32, with: i32) {
    ENGINE.before_dup(with, number).unwrap();
    model::switch_point();
    assert!(io::dup3(with, number, io::O_CLOEXEC).is_ok());
}

/// A request on a number, as a thread finds it that is to execute it.
fn park(ring: &'static Ring, number: i32) -> ReqId {
    let mut req = Request::new(&Sqe::default());
    req.op = nop::prep(&Sqe::default(), &PrepCx { setup: 0, sqe_flags: 0, is_after_link: false, is_wide: false }).unwrap().into();
    req.target = FileTarget::Fd(number);
    ring.lock(LockOwner::Worker).unwrap().park(req, Stage::Running)
}

/// Executes a request as a worker does: without a lock, between two with it.
fn execute<R>(ring: &'static Ring, id: ReqId, executor: u32, call: impl FnOnce(i32) -> R) -> R {
    let taken = take_op(&mut ring.lock(LockOwner::Worker).unwrap(), id, executor).unwrap();
    model::switch_point();
    let result = call(taken.fd);
    assert!(complete_op(&mut ring.lock(LockOwner::Worker).unwrap(), id, taken, Outcome::ok(1), None));
    result
}

#[test]
fn an_op_that_a_thread_executes_reads_the_file_that_its_number_meant() {
    for executor in [0, WORKER] {
        model::check_alone(3, move || {
            let scene = EngineModel::new();
            let (old, new) = (MarkedPipe::new(b'o'), MarkedPipe::new(b'n'));
            let (ring, number) = (scene.ring, old.reader);
            let id = park(ring, number);
            let worker = thread::spawn(move || execute(ring, id, executor, read_mark));
            replace(number, new.reader);
            // Before the number was replaced, or the request that had not begun has a duplicate.
            assert_eq!(worker.join().unwrap(), Some(b'o'));
            assert_eq!(read_mark(number), Some(b'n'));
        });
    }
}

#[test]
fn a_close_does_not_wait_for_an_op_that_sleeps_in_its_call() {
    loom::lazy_static! {
        static ref IS_REPLACED: AtomicBool = AtomicBool::new(false);
    }
    model::check_alone(3, || {
        let scene = EngineModel::new();
        let (old, new) = (MarkedPipe::new(b'o'), MarkedPipe::new(b'n'));
        let (ring, number) = (scene.ring, old.reader);
        let id = park(ring, number);
        let sleep = |number: i32| {
            // The kernel has the file from here on.
            let file = EngineFd::dup_of(number).unwrap();
            set_in_system_call(WORKER, true);
            while !IS_REPLACED.load(Ordering::Acquire) {
                thread::yield_now();
            }
            set_in_system_call(WORKER, false);
            read_mark(file.number())
        };
        let worker = thread::spawn(move || execute(ring, id, WORKER, sleep));
        replace(number, new.reader);
        IS_REPLACED.store(true, Ordering::Release);
        assert_eq!(worker.join().unwrap(), Some(b'o'));
        assert_eq!(read_mark(number), Some(b'n'));
    });
}

#[test]
fn a_number_that_the_program_takes_is_not_closed_with_the_engines_descriptor() {
    model::check_alone(3, || {
        let (own, new) = (MarkedPipe::new(b'e'), MarkedPipe::new(b'n'));
        let descriptor = EngineFd::dup_of(own.reader).unwrap();
        let number = descriptor.number();
        io::close(own.reader).unwrap();
        let closer = thread::spawn(move || drop(descriptor));
        replace(number, new.reader);
        closer.join().unwrap();
        assert_eq!(read_mark(number), Some(b'n'));
        // The engine's is not open under another number.
        assert_eq!(io::poll_now(own.writer, 0), Ok(EPOLLERR));
        io::close(number).unwrap();
    });
}

#[test]
fn a_number_that_two_threads_take_leaves_the_engine_its_descriptor() {
    model::check_alone(2, || {
        let (own, new) = (MarkedPipe::new(b'e'), MarkedPipe::new(b'n'));
        let descriptor = EngineFd::dup_of(own.reader).unwrap();
        let number = descriptor.number();
        io::close(own.reader).unwrap();
        let [one, other] = [EngineFd::dup_of(new.reader).unwrap(), EngineFd::dup_of(new.reader).unwrap()];
        let taker = thread::spawn(move || {
            replace(number, one.number());
        });
        replace(number, other.number());
        taker.join().unwrap();
        assert_eq!(read_mark(descriptor.number()), Some(b'e'));
        drop(descriptor);
        assert_eq!(io::poll_now(own.writer, 0), Ok(EPOLLERR));
        io::close(number).unwrap();
    });
}
