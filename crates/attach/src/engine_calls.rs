//! The engine for a program that has loaded this object itself, without attaching
//! (`uringlet::Ring`).
//!
//! No constructor has run and no call of the program's is replaced: the engine knows of its rings'
//! own calls and of fork(2), and runs on the caller's stack.

use uringlet_core::ENGINE;
use uringlet_sys::engine_calls::EngineCalls;
use uringlet_sys::linux::general::{MAP_SHARED, PROT_READ, PROT_WRITE};
use uringlet_sys::{AppPromise, Errno, UserPtr};

use crate::fork::HEAP;
use crate::{mistakes, start};

/// See [`EngineCalls`].
#[cfg_attr(not(test), unsafe(export_name = "uringlet_engine_calls"))]
pub(crate) static ENGINE_CALLS: EngineCalls = EngineCalls {
    layout: EngineCalls::LAYOUT,
    start: begin,
    setup,
    enter,
    register,
    map_ring,
    close,
    note_polled,
    settle_readiness,
    before_fork,
    after_fork_in_parent,
    after_fork_in_child,
};

extern "C" fn begin() {
    HEAP.register();
    start::configure();
    ENGINE.expect_unseen_closes();
    mistakes::check();
    mistakes::report();
}

unsafe extern "C" fn setup(entries: u32, params: usize) -> isize {
    // SAFETY: the caller's promise is the same.
    let promise = unsafe { AppPromise::given() };
    ENGINE.setup(promise, entries, UserPtr::new(params))
}

extern "C" fn enter(fd: i32, to_submit: u32, min_complete: u32, flags: u32, arg: usize, arg_len: usize) -> isize {
    ENGINE.enter(fd.cast_unsigned(), to_submit, min_complete, flags, UserPtr::new(arg), arg_len)
}

extern "C" fn register(fd: i32, opcode: u32, arg: usize, nr_args: u32) -> isize {
    ENGINE.register(fd.cast_unsigned(), opcode, UserPtr::new(arg), nr_args)
}

extern "C" fn map_ring(fd: i32, len: usize, offset: u64) -> isize {
    ENGINE.mmap(0, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset).unwrap_or_else(no_ring)
}

extern "C" fn close(fd: i32) -> isize {
    ENGINE.close(fd).unwrap_or_else(no_ring)
}

/// The number is no ring's.
fn no_ring() -> isize {
    -(Errno::EBADF.into_raw() as isize)
}

extern "C" fn note_polled(fd: i32) {
    ENGINE.note_polled(fd);
}

extern "C" fn settle_readiness() {
    if ENGINE.any_readable() {
        ENGINE.settle_readiness();
    }
}

// The heap's lock is the innermost: taken last, released first.
unsafe extern "C" fn before_fork() {
    ENGINE.before_fork();
    HEAP.lock_for_fork();
}

unsafe extern "C" fn after_fork_in_parent() {
    HEAP.unlock_after_fork();
    ENGINE.after_fork_in_parent();
}

unsafe extern "C" fn after_fork_in_child() {
    HEAP.unlock_after_fork();
    ENGINE.after_fork_in_child();
}
