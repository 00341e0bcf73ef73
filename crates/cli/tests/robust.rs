//! Programs that misbehave, are interrupted, fork and die, under `uringlet run`: none of them
//! crashes, hangs or loses a completion, and the answers are the kernel's.
//!
//! Each program runs on the engine, where a real io_uring call kills it, and on the kernel's own
//! ring, which checks the expectations.

mod common;

use common::oracle::{has_ring, is_kernel_new_enough, must_succeed};
use common::{compile, directory, finish, stderr, stdout, uringlet};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// A program that runs on the engine and on the kernel's ring, each run in its own folder.
struct BothRings {
    program: PathBuf,
    directory: PathBuf,
}

impl BothRings {
    fn new(name: &str) -> Self {
        let directory = directory(name);
        let program = compile("cc", &directory, name, &[&format!("{name}.c")], &[]);
        Self { program, directory }
    }

    fn folder(&self, name: &str) -> PathBuf {
        let folder = self.directory.join(name);
        std::fs::create_dir_all(&folder).expect("a folder to work in");
        folder
    }

    fn on_engine(&self, change: impl Fn(&mut Command)) -> Output {
        let mut command = uringlet(&self.directory.join("cache"));
        command.arg("--").arg(&self.program).env("BLOCK_IO_URING", "1").current_dir(self.folder("engine"));
        change(&mut command);
        finish(&mut command)
    }

    /// `None` where the kernel has no ring, or is older than the expectations.
    fn on_kernel(&self, change: impl Fn(&mut Command)) -> Option<Output> {
        if !is_kernel_new_enough() {
            eprintln!("skipped: this kernel is older than the expectations");
            return None;
        }
        let mut command = Command::new(&self.program);
        command.current_dir(self.folder("kernel"));
        change(&mut command);
        Some(finish(&mut command)).filter(has_ring)
    }
}

fn behaves(name: &str) {
    let both = BothRings::new(name);
    must_succeed(&both.on_engine(|_| ()), "on the engine");
    if let Some(output) = both.on_kernel(|_| ()) {
        must_succeed(&output, "on the kernel's ring");
    }
}

/// With `FUZZ_MINUTES` again and again, with other numbers each time.
#[test]
fn a_program_that_scribbles_on_its_ring_harms_itself_only() {
    behaves("robust_scribble");
    let Some(deadline) = fuzz_deadline() else { return };
    let (both, first) = (BothRings::new("robust_scribble"), variable("FUZZ_FIRST", 1_u64));
    let mut seed = first;
    while Instant::now() < deadline {
        let with_seed = |command: &mut Command| {
            command.arg(seed.to_string());
        };
        must_succeed(&both.on_engine(with_seed), &format!("with seed {seed}"));
        seed += 1;
    }
    println!("seeds {first} to {}", seed - 1);
}

#[test]
fn the_descriptor_behaves_as_that_of_a_ring() {
    behaves("robust_fd");
}

#[test]
fn rings_leave_nothing_behind() {
    behaves("robust_life");
}

#[test]
fn signal_handlers_find_a_consistent_ring() {
    behaves("robust_signals");
}

#[test]
fn completions_arrive_without_a_call() {
    behaves("robust_quiet");
}

#[test]
fn each_request_completes_once_under_load() {
    behaves("robust_load");
}

/// The answers of a run in the order of the cases: ("number description", answer).
fn answers(output: &Output, on: &str) -> Vec<(String, String)> {
    assert!(output.status.success(), "on {on}: {}\n{}", output.status, stderr(output));
    stdout(output)
        .lines()
        .map(|line| line.split_once(" => ").unwrap_or_else(|| panic!("on {on}: {line:?}")))
        .map(|(what, answer)| (what.into(), answer.into()))
        .collect()
}

/// Whether two answers differ by more than the choice among errors, which the caller counts.
fn differs(kernel: &str, engine: &str) -> bool {
    kernel != engine && !(is_error(kernel) && is_error(engine))
}

fn is_error(answer: &str) -> bool {
    answer.parse::<i32>().is_ok_and(|n| n < 0)
}

/// Random setups, registrations, enters and SQEs: no crash, no hang, the ring works afterwards, and
/// the answers are those of the kernel's ring.
///
/// `FUZZ_FIRST` and `FUZZ_COUNT` choose other cases, `FUZZ_MINUTES` as many as the time allows,
/// `FUZZ_TARGET` SQEs (`sqe`) or all else (`calls`).
#[test]
fn random_calls_get_the_answers_of_the_kernel() {
    let (first, count) = (variable("FUZZ_FIRST", 1_u64), variable("FUZZ_COUNT", 1000_u64));
    let both = BothRings::new("robust_fuzz");
    let deadline = fuzz_deadline();
    let mut from = first;
    // In batches: each has the time limit of a program.
    while deadline.map_or(from < first + count, |deadline| Instant::now() < deadline) {
        let batch = if deadline.is_some() { 500 } else { 500.min(first + count - from) };
        compare(&both, from, batch);
        from += batch;
    }
    println!("cases {first} to {}", from - 1);
}

/// A number from the environment.
fn variable<N: FromStr>(name: &str, default: N) -> N {
    std::env::var(name).map_or(default, |n| n.parse().unwrap_or_else(|_| panic!("{name}: not a number")))
}

/// When to end, if `cargo xtask fuzz` runs the test.
fn fuzz_deadline() -> Option<Instant> {
    let minutes = variable("FUZZ_MINUTES", 0.0);
    (minutes > 0.0).then(|| Instant::now() + Duration::from_secs_f64(minutes * 60.0))
}

fn compare(both: &BothRings, from: u64, count: u64) {
    let cases = |command: &mut Command, from: &str, count: u64| {
        command.args([from, &count.to_string()]);
    };
    let engine = answers(&both.on_engine(|command| cases(command, &from.to_string(), count)), "the engine");
    assert_eq!(engine.len() as u64, count);
    for (what, answer) in &engine {
        assert!(!answer.contains("crashes") && !answer.contains("dead"), "{what}: {answer}");
    }
    let Some(kernel) = both.on_kernel(|command| cases(command, &from.to_string(), count)) else { return };
    let kernel = answers(&kernel, "the kernel");
    let mut other_errors = Vec::new();
    for ((what, on_engine), (as_well, on_kernel)) in engine.iter().zip(&kernel) {
        // "unknown": it lacks the operation. "hangs": the kernel waits for an event.
        if on_engine == on_kernel || on_engine == "unknown" || on_kernel == "unknown" || on_kernel == "hangs" {
            continue;
        }
        // Repeated with more time for an answer.
        let number = what.split(' ').next().expect("a number");
        let patient = |command: &mut Command| cases(command.env("PATIENT", "1"), number, 1);
        let engine_again = answers(&both.on_engine(patient), "the engine");
        let kernel_again = answers(&both.on_kernel(patient).expect("a ring as before"), "the kernel");
        let (on_engine, on_kernel) = (&engine_again[0].1, &kernel_again[0].1);
        assert!(
            !differs(on_kernel, on_engine) || on_kernel == "hangs",
            "{what} ({as_well}): {on_kernel} on the kernel, {on_engine} on the engine"
        );
        if on_engine != on_kernel {
            other_errors.push(format!("{what}: {on_kernel} on the kernel, {on_engine} on the engine"));
        }
    }
    // An SQE with several errors may be answered with another one of them.
    println!("other errors in {} of {count} cases:\n{}", other_errors.len(), other_errors.join("\n"));
    assert!(other_errors.len() as u64 <= count / 30, "other errors than the kernel's:\n{}", other_errors.join("\n"));
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
