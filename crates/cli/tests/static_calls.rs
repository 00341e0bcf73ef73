//! What the system calls of a static program mean: those that a dynamic program makes through
//! interposed functions, and those about its own file. Go programs, whose runtime sends signals.

mod common;

use common::oracle::{self, NO_RING, has_ring, is_kernel_new_enough, must_succeed};
use common::{compile, directory, finish, stderr, stdout, uringlet};
use std::path::{Path, PathBuf};
use std::process::Command;

const GLIBC: (&str, &[&str]) = ("cc", &["-static"]);
const MUSL: (&str, &[&str]) = ("musl-gcc", &["-static"]);

#[test]
fn every_call_finds_the_programs_own_file() {
    for (compiler, options) in [GLIBC, MUSL] {
        let directory = directory(&format!("static-exe-{compiler}"));
        let program = compile(compiler, &directory, "static_exe", &["static_exe.c"], options);
        let plain = finish(Command::new(&program).current_dir(&directory));
        let attached = finish(uringlet(&directory).arg("--").arg(&program).current_dir(&directory));
        assert!(plain.status.success() && stdout(&plain).contains("static_exe\n"), "{}", stdout(&plain));
        assert_eq!(stdout(&attached), stdout(&plain), "{compiler}: {}", stderr(&attached));
        assert_eq!(attached.status, plain.status);
    }
}

/// Linked statically, a program on the engine: it checks its expectations itself, and its other
/// form does so on the kernel's ring.
fn engine(program: &str, (compiler, options): (&str, &[&str])) {
    let directory = directory(&format!("static-{program}-{compiler}"));
    let executable = compile(compiler, &directory, program, &[&format!("{program}.c")], options);
    let mut command = uringlet(&directory);
    command.arg("--").arg(executable).env("BLOCK_IO_URING", "1").current_dir(&directory);
    oracle::must_succeed(&finish(&mut command), &format!("{program} by {compiler}"));
}

#[test]
fn raw_transfers_and_messages_of_a_ring_are_refused() {
    engine("states_refused", GLIBC);
}

#[test]
fn children_of_every_fork_use_rings() {
    engine("states_fork", GLIBC);
}

#[test]
fn calls_need_little_stack() {
    engine("stack_budget", GLIBC);
}

/// Builds tests/go/`name`.go. `None`: there is no Go here.
fn build_go(directory: &Path, name: &str) -> Option<PathBuf> {
    let compilers = ["go", "/usr/local/go/bin/go"];
    let Some(go) = compilers.into_iter().find(|go| Command::new(go).arg("version").output().is_ok_and(|output| output.status.success()))
    else {
        eprintln!("skipped: there is no Go compiler (Debian: golang-go)");
        return None;
    };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/go").join(format!("{name}.go"));
    let program = directory.join(name);
    let done = Command::new(go).args(["build", "-o"]).arg(&program).arg(source).env("CGO_ENABLED", "0").output().expect("go starts");
    assert!(done.status.success(), "{}", stderr(&done));
    Some(program)
}

#[test]
fn goroutines_use_rings_among_the_signals_of_their_runtime() {
    let directory = directory("static-go");
    let Some(program) = build_go(&directory, "rings") else { return };
    let blocked = compile("cc", &directory, "blocked_exec", &["blocked_exec.c"], &[]);
    let plainly_blocked = finish(Command::new(&blocked).arg(&program).arg(&program));
    assert_eq!(plainly_blocked.status.code(), Some(NO_RING), "{}", stdout(&plainly_blocked));
    let run = uringlet(&directory);
    let mut command = Command::new(blocked);
    command.arg(run.get_program()).args(run.get_args()).arg("--").arg(&program).arg(&program);
    for (name, value) in run.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    must_succeed(&finish(&mut command), "on the engine");
    if is_kernel_new_enough() {
        let output = finish(Command::new(&program).arg(&program));
        if has_ring(&output) {
            must_succeed(&output, "on the kernel's ring");
        }
    }
}
