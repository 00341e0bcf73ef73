//! `uringlet chaos`: programs that are careful, and programs that are not.

mod common;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

fn command(directory: &Path) -> Command {
    if !directory.join("store").exists() {
        common::compile("cc", directory, "store", &["chaos.c"], &["-luring"]);
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_uringlet"));
    command.env("URINGLET_LIB", common::object()).env("URINGLET_CACHE", directory).env_remove("LD_PRELOAD");
    command.current_dir(directory);
    command
}

fn chaos(directory: &Path, options: &[&str], arguments: &[&str]) -> Output {
    common::finish(command(directory).arg("chaos").args(options).args(["--", "./store"]).args(arguments))
}

/// The options behind `repeat: uringlet`.
fn repeat(shown: &str) -> Vec<String> {
    let line = shown.lines().find_map(|line| line.trim().strip_prefix("repeat: uringlet ")).unwrap_or_else(|| panic!("{shown}"));
    line.split(' ').map(str::to_owned).collect()
}

#[test]
fn a_careful_program_survives() {
    let directory = common::directory("chaos-careful");
    let output = chaos(&directory, &["--seeds", "1..25", "-j2"], &[]);
    let shown = common::stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{shown}{}", common::stderr(&output));
    assert!(shown.starts_with("25 seeds, ") && shown.contains(" decisions: 0 fail"), "{shown}");
}

#[test]
fn a_short_read_that_nobody_expects_is_found_and_shrunk() {
    let directory = common::directory("chaos-reads");
    let output = chaos(&directory, &["--seeds", "1..12", "--shrink=1"], &["reads"]);
    let shown = common::stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{shown}{}", common::stderr(&output));
    assert!(shown.contains(": the program is killed by SIGABRT\n  1 of ") && shown.contains(" decisions is enough:\n"), "{shown}");
    assert!(shown.contains(" short: ") && shown.contains(": READ(") && shown.contains("(INJECTED)"), "{shown}");
    assert!(shown.contains("its last lines:\n    block "), "{shown}");
    // The command does it again.
    let again = common::finish(command(&directory).args(repeat(&shown)));
    assert!(again.status.code().is_none() && common::stdout(&again).starts_with("block "), "{again:?}");
    assert!(common::stderr(&output).lines().any(|line| line.starts_with("seed ") && line.ends_with(": the program is killed by SIGABRT")));
}

#[test]
fn completions_that_come_in_another_order_are_found() {
    let directory = common::directory("chaos-order");
    let output = chaos(&directory, &["--seeds", "1..8", "--shrink=1"], &["order"]);
    let shown = common::stdout(&output);
    assert!(output.status.code() == Some(1) && shown.contains("the program exits with status 1"), "{shown}");
    assert!(shown.contains(" late") || shown.contains("by a worker") || shown.contains(" short: "), "{shown}");
}

#[test]
fn a_program_that_waits_for_ever_hangs() {
    let directory = common::directory("chaos-hang");
    let options = ["--seeds", "1..30", "-j", "4", "--timeout=3", "--shrink=1", "--shrink-runs=8"];
    let output = chaos(&directory, &options, &["polls"]);
    let shown = common::stdout(&output);
    assert!(output.status.code() == Some(1) && shown.contains("the program hangs"), "{shown}{}", common::stderr(&output));
    assert!(shown.contains("the multishot ends with result"), "{shown}");
}

#[test]
fn a_program_that_fails_anyway_is_not_tried() {
    let directory = common::directory("chaos-fails");
    let output = chaos(&directory, &[], &["fails"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(common::stderr(&output).contains("without a fault the program exits with status 9 already"), "{}", common::stderr(&output));
    let wrong = chaos(&directory, &["--seeds", "9..1"], &[]);
    assert!(common::stderr(&wrong).contains("the smaller one first"), "{}", common::stderr(&wrong));
}

#[test]
fn expressions_are_tried_with_each_seed() {
    let directory = common::directory("chaos-inject");
    let output = chaos(&directory, &["--seeds", "3", "--inject", "WRITE:error=ENOSPC:when=5", "--shrink=1"], &[]);
    let shown = common::stdout(&output);
    assert!(shown.contains("the program exits with status 6") && shown.contains("not executed: -ENOSPC"), "{shown}");
    assert!(repeat(&shown).join(" ").contains("--inject WRITE:error=ENOSPC:when=5 --only 0."), "{shown}");
}

#[test]
fn the_same_seed_makes_the_same_trace() {
    let directory = common::directory("chaos-replay");
    let trace = |seed: &str, mode: &str| {
        let own = env!("CARGO_BIN_EXE_uringlet");
        let mut traced = command(&directory);
        let output = common::finish(traced.args(["trace", "--json", "--", own, "run", "--legal", seed, "--", "./store", mode]));
        let line = |line: &str| serde_json::from_str::<serde_json::Value>(line).ok();
        let events = common::stderr(&output).lines().filter_map(line).collect::<Vec<_>>();
        let mut requests: Vec<String> = events
            .iter()
            .filter(|event| event["event"] == "request")
            .map(|event| {
                let args = [&event["args"]["len"], &event["args"]["off"]];
                let result = [&event["res"], &event["cqe_flags"], &event["injected"]];
                format!("{} {} {} {args:?} {result:?}", event["request"], event["op"], event["user_data"])
            })
            .collect();
        requests.sort();
        assert!(requests.iter().any(|line| line.contains("true")), "{}", common::stderr(&output));
        requests
    };
    // What follows a short transfer depends on the order of completions; the first eight do not.
    let is_first = |line: &String| line.split(' ').next().and_then(|n| n.parse::<u32>().ok()).is_some_and(|n| n < 9);
    let first = |seed| trace(seed, "all").into_iter().filter(is_first).collect::<Vec<_>>();
    for seed in ["1", "2", "3"] {
        assert_eq!(first(seed), first(seed), "seed {seed}");
    }
    // A program that waits for each request does the same as a whole.
    for seed in ["1", "2", "3", "4"] {
        let whole = trace(seed, "single");
        assert!(whole.len() > 48, "{whole:?}");
        assert_eq!(whole, trace(seed, "single"), "seed {seed}");
    }
    assert_ne!(trace("1", "single"), trace("2", "single"));
}

#[test]
fn ctrl_c_reports_what_is_known() {
    let directory = common::directory("chaos-interrupt");
    let mut started = command(&directory);
    started.args(["chaos", "--seeds", "1..100000", "--", "./store"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = started.spawn().expect("chaos starts");
    std::thread::sleep(Duration::from_secs(3));
    let _ = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    let output = common::finish_child(child, "chaos");
    assert_eq!(output.status.code(), Some(130), "{}", common::stderr(&output));
    assert!(common::stdout(&output).contains(" of 100000 seeds, "), "{}", common::stdout(&output));
}
