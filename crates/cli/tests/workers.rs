//! io-wq as programs see it: how many workers there are, under which name and on which CPUs; what a cancel finds; what
//! happens where no thread can be started. Where Linux promises the same, its own ring is asked too.

mod common;

use std::process::{Command, Output};

/// The program's "no ring to be had".
const NO_RING: i32 = 77;

fn said(output: &Output) -> String {
    format!("{}\n{}{}", output.status, common::stdout(output), common::stderr(output))
}

fn engine_does(section: &str) {
    let directory = common::directory(&format!("workers-{section}-engine"));
    let executable = common::compile("cc", &directory, "workers", &["workers.c"], &[]);
    let output = common::finish(common::uringlet(&directory).arg("--").arg(executable).arg(section).env("BLOCK_IO_URING", "1"));
    assert!(output.status.success(), "{}", said(&output));
}

fn kernel_does(section: &str) {
    let directory = common::directory(&format!("workers-{section}-kernel"));
    let executable = common::compile("cc", &directory, "workers", &["workers.c"], &[]);
    let output = common::finish(Command::new(executable).arg(section));
    if output.status.code() == Some(NO_RING) {
        eprintln!("this kernel has no io_uring for us: not asked");
        return;
    }
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn limits_are_kept_changed_and_reported() {
    engine_does("limits");
}

#[test]
fn limits_are_kept_under_load() {
    engine_does("load");
}

#[test]
fn workers_run_where_they_may() {
    engine_does("affinity");
}

#[test]
fn a_cancel_finds_what_is_queued_and_what_runs() {
    engine_does("cancels");
}

#[test]
fn a_cancel_is_never_late_and_hits_nobody_else() {
    engine_does("races");
    kernel_does("races");
}

#[test]
fn attached_rings_share_workers() {
    engine_does("attached");
}

#[test]
fn where_no_thread_can_be_started_everything_is_done_all_the_same() {
    engine_does("no-threads");
}

#[test]
fn idle_workers_end() {
    engine_does("retire");
    kernel_does("retire");
}
