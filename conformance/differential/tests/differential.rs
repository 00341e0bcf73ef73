//! A fixed set of scenarios: `cargo run -p differential -- --help` for more.

use std::process::Command;

#[test]
fn engine_matches_the_kernel() {
    let status = Command::new(env!("CARGO_BIN_EXE_differential")).args(["--seed", "1", "--count", "100", "--ops", "12"]).status();
    assert!(status.expect("the program that was just built starts").success());
}

/// Mostly requests of network servers.
const SERVES: [&str; 7] = ["--net", "--seed", "1", "--count", "100", "--ops", "12"];

#[test]
fn engine_matches_the_kernel_on_server_requests() {
    let status = Command::new(env!("CARGO_BIN_EXE_differential")).args(SERVES).status();
    assert!(status.expect("the program that was just built starts").success());
}

/// What Linux 6.7 to 6.18 brought.
#[test]
fn engine_matches_the_kernel_on_recent_requests() {
    let status =
        Command::new(env!("CARGO_BIN_EXE_differential")).args(["--recent", "--seed", "1", "--count", "80", "--ops", "12"]).status();
    assert!(status.expect("the program that was just built starts").success());
}

/// Requests with IOSQE_ASYNC are tried by a worker, as in the kernel.
#[test]
fn engine_workers_match_the_kernel() {
    let status = Command::new(env!("CARGO_BIN_EXE_differential")).args(SERVES).arg("--with=--iosqe-async=worker").status();
    assert!(status.expect("the program that was just built starts").success());
}

/// Requests with IOSQE_ASYNC sleep in a worker, where the kernel arms poll: only who waits differs.
#[test]
fn sleeping_workers_match_the_kernel() {
    let options = ["--net", "--seed", "1", "--count", "60", "--ops", "12", "--with=--iosqe-async=block"];
    let status = Command::new(env!("CARGO_BIN_EXE_differential")).args(options).status();
    assert!(status.expect("the program that was just built starts").success());
}

/// Each differed once, and was mended: the last buffer of a multishot bundle, with whole and with
/// incremental buffers; the order of FTRUNCATE's checks; links and hidden CQEs behind a file that
/// is not there.
#[test]
fn scenarios_that_differed_stay_mended() {
    let scenarios: [&[&str]; 7] = [
        &["603249", "--net"],
        &["800057", "--net"],
        &["802652", "--net"],
        &["710219", "--net"],
        &["800554"],
        &["800672", "--net"],
        &["200207"],
    ];
    for scenario in scenarios {
        let status =
            Command::new(env!("CARGO_BIN_EXE_differential")).args(["--count", "1", "--ops", "16", "--seed"]).args(scenario).status();
        assert!(status.expect("the program that was just built starts").success(), "seed {scenario:?}");
    }
}

/// `trace --kernel` harms no program, and shows what the trace of the engine shows. 1,000 seeds:
/// `cargo run -p differential -- traces --count 1000 --all`.
#[test]
fn traces_of_both_rings_show_the_same() {
    let options = ["traces", "--all", "--seed", "1", "--count", "10", "--ops", "12"];
    let status = Command::new(env!("CARGO_BIN_EXE_differential")).args(options).status();
    assert!(status.expect("the program that was just built starts").success());
}
