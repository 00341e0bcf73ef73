//! Programs in unusual states, on the engine and on the kernel's ring: children that share memory
//! or that no fork handler has seen, a first thread that has ended, no threads to be had.

mod common;

common::oracle::compare! {
    /// `clone()`, `_Fork()`, fork by a raw call.
    states_fork,
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
