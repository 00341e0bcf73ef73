//! `xtask fuzz`: random SQEs, calls and overwritten rings for a time, on the engine and on the
//! kernel's ring.
//!
//! The programs and what is compared are those of `crates/cli/tests/robust.rs`, which runs a fixed
//! number of cases.

use crate::libtest::tally_of;
use crate::test_counts::TestCounts;
use anyhow::{bail, ensure};
use std::ffi::OsString;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

const USAGE: &str = "\
usage: cargo xtask fuzz [--minutes N] [--first N] [--cases N] [TARGET...]

Runs each target for N minutes (1); an hour each with --minutes 60. A failure prints its case.
  --first N   the first case or seed (another one each time); the same case is the same everywhere
  --cases N   of `sqe` and `calls` so many, however long they take
Targets: sqe       SQEs with random fields
         calls     io_uring_setup, io_uring_register with random arguments, io_uring_enter
         scribble  rings whose shared memory the program overwrites";

/// A target, and the test that has it.
const TARGETS: &[(&str, &str)] = &[
    ("sqe", "random_calls_get_the_answers_of_the_kernel"),
    ("calls", "random_calls_get_the_answers_of_the_kernel"),
    ("scribble", "a_program_that_scribbles_on_its_ring_harms_itself_only"),
];

#[derive(Debug)]
struct FuzzOptions {
    minutes: f64,
    first: u64,
    cases: Option<u64>,
    targets: Vec<String>,
}

/// Runs all targets, or the wanted ones.
pub(crate) fn main(args: Vec<OsString>) -> anyhow::Result<TestCounts> {
    let Some(options) = parse(args)? else {
        println!("{USAGE}");
        return Ok(TestCounts::default());
    };
    let is_wanted = |target: &str| options.targets.is_empty() || options.targets.iter().any(|wanted| wanted == target);
    let mut counts = TestCounts::default();
    for (target, test) in TARGETS.iter().filter(|(target, _)| is_wanted(target)) {
        let mut command = Command::new("cargo");
        command.args(["test", "--package", "uringlet-cli", "--test", "robust", "--", "--exact", "--nocapture", test]);
        command.env("FUZZ_TARGET", target).env("FUZZ_FIRST", options.first.to_string());
        // A test of rings that are overwritten has seeds, which take different times.
        let cases = options.cases.filter(|_| *target != "scribble");
        if let Some(cases) = cases {
            println!("fuzz: {target}, {cases} cases from {}", options.first);
            command.env("FUZZ_COUNT", cases.to_string());
        } else {
            println!("fuzz: {target}, {} minutes from {}", options.minutes, options.first);
            command.env("FUZZ_MINUTES", options.minutes.to_string());
        }
        counts.add(tally_of(command)?);
    }
    println!("{counts}");
    Ok(counts)
}

fn parse(args: Vec<OsString>) -> anyhow::Result<Option<FuzzOptions>> {
    use lexopt::prelude::*;
    // Other cases each time: the seconds of this run.
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let mut parsed = FuzzOptions { minutes: 1.0, first: now * 1000, cases: None, targets: Vec::new() };
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("help") | Short('h') => return Ok(None),
            Long("minutes") => parsed.minutes = parser.value()?.parse()?,
            Long("first") => parsed.first = parser.value()?.parse()?,
            Long("cases") => parsed.cases = Some(parser.value()?.parse()?),
            Value(target) => parsed.targets.push(target.string()?),
            other => bail!("{}\n{USAGE}", other.unexpected()),
        }
    }
    ensure!(parsed.minutes > 0.0, "--minutes must be above 0");
    for target in &parsed.targets {
        ensure!(TARGETS.iter().any(|(known, _)| known == target), "there is no target `{target}`\n{USAGE}");
    }
    Ok(Some(parsed))
}
