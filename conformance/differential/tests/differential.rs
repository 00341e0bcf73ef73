//! A fixed number of scenarios, the same ones each time: `cargo run -p differential -- --help` for more.

use std::process::Command;

#[test]
fn the_engine_does_what_the_kernel_does() {
    let status = Command::new(env!("CARGO_BIN_EXE_differential")).args(["--seed", "1", "--count", "100", "--ops", "12"]).status();
    assert!(status.expect("the program that was just built starts").success());
}

/// Mostly what servers ask for.
#[test]
fn the_engine_serves_as_the_kernel_does() {
    let arguments = ["--net", "--seed", "1", "--count", "100", "--ops", "12"];
    let status = Command::new(env!("CARGO_BIN_EXE_differential")).args(arguments).status();
    assert!(status.expect("the program that was just built starts").success());
}
