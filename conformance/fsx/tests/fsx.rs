//! On the kernel's ring, if there is one: no check fails, and a seed names one sequence of
//! operations however they are executed.

use std::process::Command;

const NO_RING: i32 = 77;

/// The sequence number that a run prints. `None`: no ring.
fn sequence(options: &[&str]) -> Option<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fsx"));
    let output =
        command.args(["--ops", "20000", "--round", "5000", "--seed", "7", "--dir", env!("CARGO_TARGET_TMPDIR")]).args(options).output();
    let output = output.expect("the program that was just built starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.code() == Some(NO_RING) {
        eprintln!("this kernel gives no ring: not asked");
        return None;
    }
    assert!(output.status.success(), "{}: {text}", output.status);
    let (_, sequence) = text.split_once("sequence ")?;
    sequence.split_once(')').map(|(sequence, _)| sequence.to_owned())
}

#[test]
fn a_seed_names_one_sequence() {
    let Some(first) = sequence(&["--jobs", "1"]) else { return };
    assert_eq!(sequence(&["--jobs", "3"]), Some(first));
}
