//! Programs that misbehave, are interrupted, fork and die, under `uringlet run`: nobody crashes, hangs or loses anything, and the answers are the kernel's.
//!
//! Each program runs on the engine with the kernel's io_uring walled off (a call of it kills the program), and on the kernel's own ring where there is one of
//! the version that the expectations are of, so that they are checked, too.

mod common;

use common::{compile, directory, finish, stderr, stdout, uringlet};
use std::path::PathBuf;
use std::process::{Command, Output};

/// The program's "no ring to be had".
const NO_RING: i32 = 77;

/// Whether this kernel is at least the one that the expectations are of.
fn is_kernel_as_expected() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.trim().parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(18))
}

/// A program, and a place for each of its two runs.
struct Twice {
    program: PathBuf,
    place: PathBuf,
}

impl Twice {
    fn new(name: &str) -> Self {
        let place = directory(name);
        let program = compile("cc", &place, name, &[&format!("{name}.c")], &[]);
        Self { program, place }
    }

    fn folder(&self, name: &str) -> PathBuf {
        let folder = self.place.join(name);
        std::fs::create_dir_all(&folder).expect("a folder to work in");
        folder
    }

    fn on_engine(&self, change: impl Fn(&mut Command)) -> Output {
        let mut command = uringlet(&self.place.join("cache"));
        command.arg("--").arg(&self.program).env("BLOCK_IO_URING", "1").current_dir(self.folder("engine"));
        change(&mut command);
        finish(&mut command)
    }

    /// `None` where the kernel has no ring, or an older one than the expectations are of.
    fn on_kernel(&self, change: impl Fn(&mut Command)) -> Option<Output> {
        if !is_kernel_as_expected() {
            eprintln!("this kernel is older than the expectations: not asked");
            return None;
        }
        let mut command = Command::new(&self.program);
        command.current_dir(self.folder("kernel"));
        change(&mut command);
        let output = finish(&mut command);
        if output.status.code() == Some(NO_RING) {
            eprintln!("this kernel has no io_uring for us: not asked");
            return None;
        }
        Some(output)
    }
}

fn must_succeed(output: &Output, on: &str) {
    println!("on {on}:\n{}", stdout(output));
    assert!(output.status.success(), "on {on}: {}\n{}\n{}", output.status, stdout(output), stderr(output));
}

fn behaves(name: &str) {
    let twice = Twice::new(name);
    must_succeed(&twice.on_engine(|_| ()), "the engine");
    if let Some(output) = twice.on_kernel(|_| ()) {
        must_succeed(&output, "the kernel");
    }
}

#[test]
fn scribbled_rings_harm_nobody() {
    behaves("robust_scribble");
}

#[test]
fn the_descriptor_behaves_as_a_rings() {
    behaves("robust_fd");
}

#[test]
fn rings_begin_and_end_without_a_trace() {
    behaves("robust_life");
}

#[test]
fn signals_find_no_ring_half_done() {
    behaves("robust_signals");
}

#[test]
fn completions_come_to_those_who_only_look() {
    behaves("robust_quiet");
}

#[test]
fn under_load_each_request_ends_once() {
    behaves("robust_load");
}

/// The answers of a run, by the case's number: ("number what", answer).
fn answers(output: &Output, on: &str) -> Vec<(String, String)> {
    assert!(output.status.success(), "on {on}: {}\n{}", output.status, stderr(output));
    stdout(output)
        .lines()
        .map(|line| line.split_once(" => ").unwrap_or_else(|| panic!("on {on}: {line:?}")))
        .map(|(what, answer)| (what.into(), answer.into()))
        .collect()
}

/// Whether two answers differ in a way that matters. Which of several errors is told is counted by the caller.
fn differs(kernel: &str, engine: &str) -> bool {
    kernel != engine && !(is_error(kernel) && is_error(engine))
}

fn is_error(answer: &str) -> bool {
    answer.parse::<i32>().is_ok_and(|n| n < 0)
}

/// Random setups, registrations, enters and SQEs: nobody crashes or hangs, the ring works on afterwards, and the kernel's ring says the same.
///
/// `URINGLET_FUZZ_FIRST` and `URINGLET_FUZZ_COUNT` choose other cases than those of each run.
#[test]
fn random_calls_are_answered_as_the_kernel_does() {
    let number =
        |name: &str, default: u64| std::env::var(name).map_or(default, |n| n.parse().unwrap_or_else(|_| panic!("{name}: not a number")));
    let (first, count) = (number("URINGLET_FUZZ_FIRST", 1), number("URINGLET_FUZZ_COUNT", 1000));
    let twice = Twice::new("robust_fuzz");
    // In pieces, each of which has the time limit of a program.
    for from in (first..first + count).step_by(500) {
        compare(&twice, from, 500.min(first + count - from));
    }
}

fn compare(twice: &Twice, from: u64, count: u64) {
    let cases = |command: &mut Command, from: &str, count: u64| {
        command.args([from, &count.to_string()]);
    };
    let engine = answers(&twice.on_engine(|command| cases(command, &from.to_string(), count)), "the engine");
    assert_eq!(engine.len() as u64, count);
    for (what, answer) in &engine {
        assert!(!answer.contains("crashes") && !answer.contains("dead"), "{what}: {answer}");
    }
    let Some(kernel) = twice.on_kernel(|command| cases(command, &from.to_string(), count)) else { return };
    let kernel = answers(&kernel, "the kernel");
    let mut other_errors = Vec::new();
    for ((what, on_engine), (as_well, on_kernel)) in engine.iter().zip(&kernel) {
        // What the engine does not have it does not know; what hangs on the kernel waits for something.
        if on_engine == on_kernel || on_engine == "unknown" || on_kernel == "hangs" {
            continue;
        }
        // Again, with more time for an answer.
        let number = what.split(' ').next().expect("a number");
        let patient = |command: &mut Command| cases(command.env("PATIENT", "1"), number, 1);
        let engine_again = answers(&twice.on_engine(patient), "the engine");
        let kernel_again = answers(&twice.on_kernel(patient).expect("a ring as before"), "the kernel");
        let (on_engine, on_kernel) = (&engine_again[0].1, &kernel_again[0].1);
        assert!(
            !differs(on_kernel, on_engine) || on_kernel == "hangs",
            "{what} ({as_well}): {on_kernel} on the kernel, {on_engine} on the engine"
        );
        if on_engine != on_kernel {
            other_errors.push(format!("{what}: {on_kernel} on the kernel, {on_engine} on the engine"));
        }
    }
    // Of an SQE that is wrong in several ways, another error may be told.
    println!("other errors in {} of {count} cases:\n{}", other_errors.len(), other_errors.join("\n"));
    assert!(other_errors.len() as u64 <= count / 50, "other errors than the kernel's:\n{}", other_errors.join("\n"));
    assert!(
        other_errors.iter().all(|case| case.contains(" sqe ")),
        "calls answer other errors than the kernel's:\n{}",
        other_errors.join("\n")
    );
}

#[test]
fn bad_addresses_are_efault() {
    behaves("robust_addresses");
}
