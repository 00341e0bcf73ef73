//! System call filters, and what the engine's own system calls do to others: record locks and
//! notifications. Each program states the answers of the kernel's ring and runs on both.

mod common;

use common::oracle::{NO_RING, compare, has_ring, is_kernel_new_enough, must_succeed};
use common::{compile, directory, finish, object, stderr, stdout, uringlet};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use uringlet_sys::Sysno;

compare! {
    /// The program's record locks stay when a ring lets go of a file.
    filters_locks,
    /// Watchers are told of reads and writes, O_DIRECT ones too.
    filters_notify,
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

/// Exit status of `filters_trace` if there were calls that are not listed.
const UNLISTED: i32 = 100;

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

/// Files whose numbers are those of the program's calls.
const PROGRAMS_CALLS: [&str; 9] = [
    "attach/src/intercepted.rs",
    "attach/src/dispatch.rs",
    "attach/src/symbols",
    "attach/src/rewrite/plan.rs",
    "attach/src/arch",
    "attach/src/dup.rs",
    "attach/src/fork.rs",
    "attach/src/path_call_table.rs",
    "core/src/identity_call.rs",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn is_call(word: &str) -> bool {
    word.parse::<Sysno>().is_ok()
}

/// The calls that `docs/system-calls.md` lists: the names in backticks in the first cell of a row
/// of its tables, and in the second of the table of opcodes.
fn listed_calls() -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join("docs/system-calls.md")).expect("the list");
    let mut calls = BTreeSet::new();
    for row in text.lines().filter_map(|line| line.strip_prefix("| ")) {
        let cells: Vec<&str> = row.trim_end_matches(" |").split(" | ").collect();
        let names = if cells.len() == 2 { cells[1] } else { cells[0] };
        calls.extend(names.split('`').filter(|word| is_call(word)).map(String::from));
    }
    calls
}

/// The calls in the source of the engine and its skins, each with a file that makes it.
fn calls_in_source() -> BTreeMap<String, String> {
    let mut calls = BTreeMap::new();
    for part in ["sys", "core", "attach", "liburing"] {
        add_calls_of(&root().join("crates").join(part).join("src"), &mut calls);
    }
    calls
}

fn add_calls_of(folder: &Path, calls: &mut BTreeMap<String, String>) {
    for entry in std::fs::read_dir(folder).expect("a folder of the source") {
        let path = entry.expect("an entry").path();
        let name = path.to_string_lossy().into_owned();
        if PROGRAMS_CALLS.iter().any(|programs| name.contains(programs)) {
            continue;
        }
        if path.is_dir() {
            add_calls_of(&path, calls);
        } else if name.ends_with(".rs") {
            let text = std::fs::read_to_string(&path).expect("a source file");
            let code = text.split("mod tests {").next().unwrap_or_default();
            calls.extend(calls_of(&name, code).into_iter().map(|call| (call, name.clone())));
        }
    }
}

/// The calls of a file: `Sysno::call`, and in `sys/src/io.rs` also `name = call(`.
fn calls_of(file: &str, code: &str) -> Vec<String> {
    let is_macro = file.ends_with("sys/src/io.rs");
    let lines = code.lines().map(str::trim).filter(|line| !line.starts_with("//"));
    let words = lines.flat_map(|line| {
        let defined = line.split_once(" = ").filter(|_| is_macro && line.ends_with(");")).map(|(_, call)| call);
        line.split("Sysno::").skip(1).chain(defined)
    });
    let names = words.map(|word| word.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default());
    names.filter(|name| is_call(name)).map(String::from).collect()
}

#[test]
fn the_list_of_system_calls_is_that_of_the_source() {
    let (listed, made) = (listed_calls(), calls_in_source());
    let missing: Vec<_> = made.iter().filter(|(call, _)| !listed.contains(*call)).collect();
    assert!(missing.is_empty(), "not in docs/system-calls.md: {missing:?}");
    let stale: Vec<_> = listed.iter().filter(|call| !made.contains_key(*call)).collect();
    assert!(stale.is_empty(), "in docs/system-calls.md, but not in the source: {stale:?}");
}

/// The kernel makes it in place of an interrupted sleep.
const MADE_BY_THE_KERNEL: Sysno = Sysno::restart_syscall;

/// Runs programs of the other tests under a filter that stops every call which is not listed: none
/// of those comes from the engine's object.
#[test]
fn the_engine_makes_no_call_that_is_not_listed() {
    const PROGRAMS: [&str; 9] =
        ["filters_ops", "fs_ops", "net_ops", "more_ops", "cmd_ops", "futex_ops", "xattr_ops", "net_buffers", "robust_fd"];
    let directory = directory("filters-listed");
    let trace = compile("cc", &directory, "filters_trace", &["filters_trace.c"], &[]);
    let listed = listed_calls();
    let allowed = listed.iter().filter_map(|call| call.parse::<Sysno>().ok()).chain([MADE_BY_THE_KERNEL]);
    let numbers: Vec<String> = allowed.map(|nr| (nr as u32).to_string()).collect();
    let run = |numbers: &[String], options: &[&str], program: &Path| {
        let mut command = Command::new(&trace);
        command.arg(object().file_name().expect("a name")).args(numbers).arg("--");
        command.arg(env!("CARGO_BIN_EXE_uringlet")).arg("run").args(options).arg("--").arg(program);
        finish(command.env("URINGLET_LIB", object()).env("URINGLET_CACHE", &directory).env_remove("LD_PRELOAD").current_dir(&directory))
    };
    let program = |name: &str| compile("cc", &directory, name, &[&format!("{name}.c")], &[]);
    for name in PROGRAMS {
        let program = program(name);
        for options in [&[][..], &["--mode=uringlet"]] {
            let output = run(&numbers, options, &program);
            if output.status.code() == Some(NO_RING) {
                eprintln!("skipped: nothing can be traced here");
                return;
            }
            // Whether it succeeds is for its own test: some depend on time.
            assert_ne!(output.status.code(), Some(UNLISTED), "{name} {options:?}: {}", stderr(&output));
        }
    }
    // The test can fail: without `epoll_ctl` in the list it is reported.
    let epoll_ctl = (Sysno::epoll_ctl as u32).to_string();
    let fewer: Vec<String> = numbers.iter().filter(|&number| *number != epoll_ctl).cloned().collect();
    let output = run(&fewer, &[], &program("filters_ops"));
    assert!(stderr(&output).contains(&format!("unlisted: {epoll_ctl}")), "{}", stderr(&output));
}
