//! Sockets, provided buffers and registered files as C programs see them through a ring: under `uringlet run`, where a real io_uring call kills,
//! as Linux 6.18 answers; and on this kernel's own ring where that is no older, so that the expectations themselves are checked.

mod common;

use std::process::{Command, Output};

/// The programs' "no ring to be had".
const NO_RING: i32 = 77;

fn said(output: &Output) -> String {
    format!("{}\n{}{}", output.status, common::stdout(output), common::stderr(output))
}

fn engine_answers(program: &str) {
    engine_answers_to(program, &[]);
}

fn engine_answers_to(program: &str, arguments: &[&str]) {
    engine_with(&[], program, arguments);
}

/// The engine, with options of `uringlet run`.
fn engine_with(options: &[&str], program: &str, arguments: &[&str]) {
    let directory = common::directory(&format!("{program}-engine{}", options.concat()));
    let executable = common::compile("cc", &directory, program, &[&format!("{program}.c")], &[]);
    let mut command = common::uringlet(&directory);
    let output = common::finish(command.args(options).arg("--").arg(executable).args(arguments).env("BLOCK_IO_URING", "1"));
    assert!(output.status.success(), "{options:?} {program} {arguments:?}: {}", said(&output));
}

#[test]
fn the_engine_misses_no_edge() {
    engine_answers("net_edges");
}

#[test]
fn nor_does_the_kernel() {
    kernel_answers("net_edges");
}

#[test]
fn the_engine_tells_in_order_of_what_was_deferred() {
    engine_answers("net_defer");
}

#[test]
fn so_does_the_kernel() {
    kernel_answers("net_defer");
}

#[test]
fn the_engine_does_bundles_and_notifications_as_linux_does() {
    engine_answers("net_zc");
}

#[test]
fn the_kernel_does_bundles_and_notifications_as_expected() {
    kernel_answers("net_zc");
}

#[test]
fn the_engine_does_pipes_and_messages_as_linux_does() {
    engine_answers("more_ops");
}

#[test]
fn the_kernel_does_pipes_and_messages_as_expected() {
    kernel_answers("more_ops");
}

/// How a ring is used by thousands of connections that come and go at random; a failure names its seed, with which `net_chaos SEED 2000 HOW` repeats it.
const CHAOS: [&[&str]; 9] = [
    &["1", "2000", "default"],
    &["2", "2000", "default"],
    &["3", "2000", "defer"],
    &["4", "2000", "workers"],
    &["5", "2000", "files"],
    &["6", "2000", "both"],
    &["7", "2000", "both"],
    // With so many workers of each sort at most, whatever there is to do.
    &["8", "2000", "1"],
    &["9", "2000", "4"],
];

#[test]
fn the_engine_keeps_every_byte_of_connections_that_come_and_go_at_random() {
    CHAOS.iter().for_each(|arguments| engine_answers_to("net_chaos", arguments));
}

#[test]
fn the_kernel_keeps_every_byte_of_them_too() {
    CHAOS.iter().for_each(|arguments| kernel_answers_to("net_chaos", arguments));
}

/// Those with IOSQE_ASYNC, each request made by a worker.
#[test]
fn workers_keep_every_byte_of_them_too() {
    for (seed, how) in [("14", "workers"), ("16", "both"), ("18", "1"), ("19", "4")] {
        engine_with(&[WORKER], "net_chaos", &[seed, "2000", how]);
    }
}

/// Light transfers are not handed to anybody, unless that is wanted.
const WORKER: &str = "--iosqe-async=worker";

#[test]
fn what_is_light_takes_no_worker() {
    engine_with(&[], "net_hint", &["weighed"]);
}

#[test]
fn unless_it_is_to_take_one() {
    engine_with(&[WORKER], "net_hint", &["worker"]);
}

#[test]
fn the_kernel_tells_of_it_as_expected() {
    kernel_answers("net_hint");
}

#[test]
fn a_thousand_pending_receives_need_no_worker() {
    engine_answers("net_async");
}

#[test]
fn they_need_none_if_workers_try_them() {
    engine_with(&[WORKER], "net_async", &[]);
}

#[test]
fn they_need_none_of_the_kernels_either() {
    kernel_answers("net_async");
}

/// The knob for comparing the two ways.
#[test]
fn without_the_hybrid_step_each_takes_a_worker() {
    engine_with(&["--iosqe-async=block"], "net_async", &["block"]);
}

#[test]
fn the_engine_does_extended_attributes_as_linux_does() {
    engine_answers("xattr_ops");
}

#[test]
fn the_kernel_does_extended_attributes_as_expected() {
    kernel_answers("xattr_ops");
}

#[test]
fn the_engine_waits_for_children_as_linux_does() {
    engine_answers("waitid_ops");
}

#[test]
fn the_kernel_waits_for_children_as_expected() {
    kernel_answers("waitid_ops");
}

#[test]
fn the_engine_wakes_and_waits_on_futexes_as_linux_does() {
    engine_answers("futex_ops");
}

#[test]
fn no_wait_of_the_engine_s_is_lost_among_wakes_and_cancels() {
    engine_answers("futex_load");
}

#[test]
fn nor_one_of_the_kernel_s() {
    kernel_answers("futex_load");
}

#[test]
fn the_kernel_wakes_and_waits_on_futexes_as_expected() {
    kernel_answers("futex_ops");
}

fn kernel_answers(program: &str) {
    kernel_answers_to(program, &[]);
}

fn kernel_answers_to(program: &str, arguments: &[&str]) {
    if !is_kernel_as_expected() {
        eprintln!("this kernel is older than the expectations: not asked");
        return;
    }
    let directory = common::directory(&format!("{program}-kernel"));
    let executable = common::compile("cc", &directory, program, &[&format!("{program}.c")], &[]);
    let output = common::finish(Command::new(executable).args(arguments));
    if output.status.code() == Some(NO_RING) {
        eprintln!("this kernel has no io_uring for us: not asked");
        return;
    }
    assert!(output.status.success(), "{program} {arguments:?}: {}", said(&output));
}

/// Whether this kernel is at least the one that the expectations are of.
fn is_kernel_as_expected() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.trim().parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(18))
}

#[test]
fn the_engine_does_sockets_as_linux_does() {
    engine_answers("net_ops");
}

#[test]
fn the_engine_does_buffers_and_files_as_linux_does() {
    engine_answers("net_buffers");
}

#[test]
fn the_engine_serves_many_clients_from_two_processes() {
    engine_answers("net_echo");
}

#[test]
fn the_kernel_does_sockets_as_expected() {
    kernel_answers("net_ops");
}

#[test]
fn the_kernel_does_buffers_and_files_as_expected() {
    kernel_answers("net_buffers");
}

#[test]
fn the_kernel_serves_them_too() {
    kernel_answers("net_echo");
}
