//! System call filters, and what the engine's own system calls do to others: record locks and
//! notifications. Each program states the answers of the kernel's ring and runs on both.

mod common;

use common::oracle::{NO_RING, compare, has_ring, is_kernel_new_enough, must_succeed};
use common::{compile, directory, finish, stderr, stdout, uringlet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

compare! {
    /// The program's record locks stay when a ring lets go of a file.
    filters_locks,
}

/// What the engine finds another road for, in the sets that are denied together.
const OPTIONAL: [&[&str]; 22] = [
    &["process_vm_readv", "process_vm_writev"],
    &["process_vm_readv"],
    &["process_vm_writev"],
    &["preadv2", "pwritev2"],
    &["mremap"],
    &["memfd_create"],
    &["pipe2"],
    &["exec"],
    &["epoll_pwait2"],
    &["io_setup"],
    &["io_submit"],
    &["io_getevents"],
    &["madvise"],
    &["membarrier"],
    &["openat2"],
    &["readlink"],
    &["prlimit64"],
    &["fstat"],
    &["poll"],
    &["timer_create", "timerfd_create"],
    &["prctl", "getrusage", "pidfd_open", "sched_getaffinity", "sched_setaffinity"],
    &[
        "process_vm_readv",
        "process_vm_writev",
        "preadv2",
        "pwritev2",
        "mremap",
        "pipe2",
        "epoll_pwait2",
        "io_setup",
        "madvise",
        "membarrier",
        "openat2",
        "readlink",
        "prlimit64",
        "fstat",
        "poll",
        "timer_create",
        "timerfd_create",
        "prctl",
        "getrusage",
    ],
];

/// Calls without which there is no ring, with what is denied together with them.
const REQUIRED: [&[&str]; 12] = [
    &["getpid"],
    &["clock_gettime"],
    &["futex"],
    &["fcntl"],
    &["fstat", "newfstatat"],
    &["poll", "ppoll"],
    &["pipe2", "pipe"],
    &["mremap", "memfd_create"],
    &["epoll_create1"],
    &["epoll_ctl"],
    &["epoll_pwait"],
    &["eventfd2"],
];

const EPERM: &str = "1";
const ENOSYS: &str = "38";

/// `filters_ops`, and a folder to run it in.
struct Filtered {
    program: PathBuf,
    directory: PathBuf,
}

impl Filtered {
    fn new(name: &str) -> Self {
        let directory = directory(name);
        Self { program: compile("cc", &directory, "filters_ops", &["filters_ops.c"], &[]), directory }
    }

    fn run(&self, mut command: Command, when: &str, errno: &str, calls: &[&str]) -> Output {
        finish(command.args([when, errno]).args(calls).current_dir(&self.directory))
    }

    fn on_engine(&self, when: &str, errno: &str, calls: &[&str]) -> Output {
        let mut command = uringlet(Path::new(&self.directory));
        command.arg("--").arg(&self.program).env("BLOCK_IO_URING", "1");
        self.run(command, when, errno, calls)
    }
}

#[test]
fn requests_complete_where_optional_calls_are_denied() {
    let filtered = Filtered::new("filters-optional");
    for calls in OPTIONAL {
        for (when, errno) in [("main", EPERM), ("main", ENOSYS), ("start", EPERM)] {
            must_succeed(&filtered.on_engine(when, errno, calls), &format!("{calls:?} denied with {errno} at {when}"));
        }
    }
}

#[test]
fn requests_complete_on_the_kernels_ring() {
    let filtered = Filtered::new("filters-kernel");
    for calls in OPTIONAL.into_iter().filter(|_| is_kernel_new_enough()) {
        let output = filtered.run(Command::new(&filtered.program), "main", EPERM, calls);
        if has_ring(&output) {
            must_succeed(&output, &format!("{calls:?} denied, on the kernel's ring"));
        }
    }
}

#[test]
fn a_required_call_that_is_denied_is_named() {
    let filtered = Filtered::new("filters-required");
    for calls in REQUIRED {
        for errno in [EPERM, ENOSYS] {
            let output = filtered.on_engine("main", errno, calls);
            let message = format!("the system call {} is denied", calls[0]);
            assert!(stderr(&output).contains(&message), "{calls:?}: {}{}", stdout(&output), stderr(&output));
            assert_eq!(output.status.code(), Some(NO_RING), "{calls:?}: {}", stdout(&output));
        }
    }
}
