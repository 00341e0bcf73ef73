//! A ublk server and a client of its device in one process, under `uringlet run`: from ADD_DEV to
//! DEL_DEV without `ublk_drv`, under a filter that kills at a real io_uring call.

mod common;

use common::{compile, directory, finish, stderr, stdout, uringlet};
use std::os::unix::process::ExitStatusExt;

const SIGSEGV: i32 = 11;

fn runs(mode: &str) {
    let place = directory(&format!("ublk-{mode}"));
    let program = compile("cc", &place, "ublk", &["ublk.c"], &[]);
    let mut command = uringlet(&place.join("cache"));
    command.arg("--ublk=in-process");
    command.arg("--").arg(&program).arg(mode).env("BLOCK_IO_URING", "1").current_dir(&place);
    let output = finish(&mut command);
    assert!(output.status.success(), "{mode}: {}\n{}\n{}", output.status, stdout(&output), stderr(&output));
}

/// The answers of ublk_drv of Linux 6.12; `cargo xtask oracle` asks it again.
const EXPECTED: &str = include_str!("c/ublk_probe.expected");

#[test]
fn answers_are_those_of_the_real_driver() {
    let place = directory("ublk-probe");
    let program = compile("cc", &place, "ublk_probe", &["ublk_probe.c"], &[]);
    let mut command = uringlet(&place.join("cache"));
    command.arg("--ublk=in-process");
    command.arg("--").arg(&program).env("BLOCK_IO_URING", "1").current_dir(&place);
    let output = finish(&mut command);
    assert!(output.status.success(), "{}\n{}\n{}", output.status, stdout(&output), stderr(&output));
    let answers = stdout(&output);
    for (number, (answer, expected)) in answers.lines().zip(EXPECTED.lines()).enumerate() {
        assert_eq!(answer, expected, "line {}", number + 1);
    }
    assert_eq!(answers.lines().count(), EXPECTED.lines().count());
}

#[test]
fn a_device_lives_from_add_to_delete() {
    runs("plain");
}

#[test]
fn commands_name_the_device_by_number() {
    runs("number");
}

#[test]
fn writes_ask_for_their_buffer() {
    runs("get-data");
}

#[test]
fn servers_read_and_write_the_char_device() {
    runs("user-copy");
}

#[test]
fn a_second_server_takes_over() {
    runs("recover");
}

#[test]
fn a_lost_server_fails_its_requests() {
    runs("die");
}

#[test]
fn malformed_commands_are_refused() {
    runs("refuse");
}

#[test]
fn a_forked_child_does_not_change_the_device() {
    runs("forked");
}

#[test]
fn buffers_that_fault_fail_their_requests() {
    let place = directory("ublk-faults");
    let program = compile("cc", &place, "ublk_faults", &["ublk_faults.c"], &[]);
    let run = |words: &[&str]| {
        let mut command = uringlet(&place.join("cache"));
        command.arg("--ublk=in-process");
        command.arg("--").arg(&program).args(words).env("BLOCK_IO_URING", "1").current_dir(&place);
        finish(&mut command)
    };
    let output = run(&[]);
    assert!(output.status.success(), "{}\n{}\n{}", output.status, stdout(&output), stderr(&output));
    // The program's own faults still kill it, though the engine's handler replaces the default.
    let output = run(&["die"]);
    assert_eq!(output.status.signal(), Some(SIGSEGV), "{}\n{}\n{}", output.status, stdout(&output), stderr(&output));
}
