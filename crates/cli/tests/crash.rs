//! States of a process in which the engine could crash: each program runs on the kernel's ring and
//! on the engine's, and neither crashes nor hangs.

mod common;

use common::oracle::{self, has_ring, is_kernel_new_enough, must_succeed};
use common::{compile, directory, finish, uringlet};
use std::path::PathBuf;
use std::process::Command;

oracle::compare! {
    /// A link chain as long as the SQ ends in every way that a chain can end.
    crash_chain,
    /// Asynchronous cancellation while a thread submits and waits: the ring goes on for the others.
    crash_cancel,
    /// Every signal reset, ignored or blocked, and a handler of the program's for the signal that
    /// interrupts the engine's threads: cancels work, nobody dies, the program's own signals come.
    crash_dispositions,
    /// Each call for address space fails once, and from it on; then RLIMIT_AS in steps: requests
    /// get their CQEs, what is new is refused.
    crash_memory,
    /// `ulimit -s 32`, threads of the least size, calls with signals at the edge of a stack.
    crash_stacks,
    /// A signal at every instruction of a call.
    crash_steps,
    /// Calls with 256 bytes of stack left, signals deferred.
    stack_budget,
}

/// Compiles to a program in a folder of its own.
fn build(name: &str, compiler: &str, options: &[&str]) -> (PathBuf, PathBuf) {
    let directory = directory(name);
    let source = format!("{name}.{}", if compiler == "c++" { "cc" } else { "c" });
    let program = compile(compiler, &directory, name, &[&source], options);
    (directory, program)
}

/// Runs a program on both rings; it must succeed.
fn behaves((directory, program): &(PathBuf, PathBuf), arguments: &[PathBuf]) {
    let mut engine = uringlet(&directory.join("cache"));
    engine.arg("--").arg(program).args(arguments).env("BLOCK_IO_URING", "1").current_dir(directory);
    must_succeed(&finish(&mut engine), "on the engine");
    if is_kernel_new_enough() {
        let output = finish(Command::new(program).args(arguments).current_dir(directory));
        if has_ring(&output) {
            must_succeed(&output, "on the kernel's ring");
        }
    }
}

#[test]
fn exceptions_and_cancellations_unwind_through_a_wait() {
    behaves(&build("crash_unwind", "c++", &["-fnon-call-exceptions"]), &[]);
}

#[test]
fn a_library_may_be_unloaded_and_loaded_while_a_thread_waits_in_it() {
    let program = build("crash_dlclose", "cc", &["-ldl"]);
    let library = compile("cc", &program.0, "libwaits.so", &["libwaits.c"], &["-shared", "-fPIC"]);
    behaves(&program, &[library]);
}
