//! Programs in unusual states, on the engine and on the kernel's ring: children that share memory
//! or that no fork handler has seen, a first thread that has ended, no threads to be had.

mod common;

use common::oracle::{has_ring, is_kernel_new_enough, must_succeed};
use common::{compile, directory, finish, uringlet};
use std::process::Command;

common::oracle::compare! {
    /// `clone()`, `_Fork()`, fork by a raw call.
    states_fork,
    /// A child cancels requests of its parent.
    states_child_cancels,
    /// vfork, `posix_spawn`, `clone()` with `CLONE_VM`.
    states_vfork,
    /// `pthread_exit` in `main`.
    states_main_gone,
    /// Neither workers nor the watcher can be started.
    states_no_threads,
    /// `PTHREAD_CANCEL_ASYNCHRONOUS` in a wait.
    states_cancel,
    /// System call numbers that are composed, or joined from two paths.
    states_numbers,
    /// read(2), write(2) and `SCM_RIGHTS` of a ring's descriptor.
    states_refused,
}

#[test]
fn uringlet_mode_needs_no_thread() {
    common::oracle::engine_with(&["--mode", "uringlet"], "states_no_threads", &[]);
}

#[test]
fn a_library_with_a_libc_of_its_own_uses_rings() {
    let directory = directory("states_namespace");
    let library = compile("cc", &directory, "libspace.so", &["libspace.c"], &["-shared", "-fPIC"]);
    let program = compile("cc", &directory, "states_namespace", &["states_namespace.c"], &["-ldl"]);
    let mut command = uringlet(&directory.join("cache"));
    must_succeed(&finish(command.arg("--").args([&program, &library]).env("BLOCK_IO_URING", "1")), "on the engine");
    let output = finish(Command::new(&program).arg(&library));
    if is_kernel_new_enough() && has_ring(&output) {
        must_succeed(&output, "on the kernel's ring");
    }
}
