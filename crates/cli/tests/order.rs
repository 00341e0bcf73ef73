//! Fairness between requests, and the order of their CQEs, under `uringlet run`.
//!
//! Most programs here print the CQEs of many cases, and state no expectation: what they print on
//! the engine is compared line by line with what they print on the kernel's own ring.

mod common;

use common::oracle::{self, has_ring, is_kernel_new_enough, must_succeed};
use common::{compile, directory, finish, stdout, uringlet};
use std::process::Command;

/// Runs a program on both rings and compares what it prints.
fn prints_the_same(program: &str) {
    let directory = directory(program);
    let executable = compile("cc", &directory, program, &[&format!("{program}.c")], &[]);
    let mut command = uringlet(&directory.join("cache"));
    let on_engine = finish(command.arg("--").arg(&executable).env("BLOCK_IO_URING", "1").current_dir(&directory));
    must_succeed(&on_engine, &format!("{program} on the engine"));
    if !is_kernel_new_enough() {
        eprintln!("skipped: this kernel is older than the expectations");
        return;
    }
    let on_kernel = finish(Command::new(&executable).current_dir(&directory));
    if !has_ring(&on_kernel) {
        return;
    }
    must_succeed(&on_kernel, &format!("{program} on the kernel's ring"));
    let (engine, kernel) = (stdout(&on_engine), stdout(&on_kernel));
    let differences: Vec<String> = engine
        .lines()
        .zip(kernel.lines())
        .filter(|(engine, kernel)| engine != kernel)
        .map(|(engine, kernel)| format!("engine: {engine}\nkernel: {kernel}"))
        .collect();
    assert!(differences.is_empty(), "{program} differs:\n{}", differences.join("\n"));
    assert_eq!(engine.lines().count(), kernel.lines().count(), "{program} prints as many lines on both rings");
}

#[test]
fn a_multishot_request_lets_others_have_their_turn() {
    prints_the_same("order_turns");
}

mod a_flooding_peer_delays_a_quiet_one_by_a_bounded_number_of_cqes {
    use super::oracle;

    #[test]
    fn engine() {
        oracle::engine("order_flood", &[]);
    }

    #[test]
    fn kernel() {
        oracle::kernel("order_flood", &[]);
    }
}

/// Linux 6.10 was the first that can be asked whether two numbers are of one file.
#[test]
fn a_cancel_by_descriptor_finds_requests_on_the_same_file() {
    prints_the_same("order_same_file");
}

#[test]
fn cqes_of_cancels_and_of_what_they_cancel_come_in_the_kernels_order() {
    prints_the_same("order_cancel");
}

#[test]
fn links_come_after_the_other_requests_of_their_submission() {
    prints_the_same("order_links");
}

#[test]
fn polls_tell_of_files_and_of_other_rings_what_the_kernels_tell() {
    prints_the_same("order_ready");
}

#[test]
fn iopoll_rings_accept_what_the_kernels_accept() {
    prints_the_same("order_iopoll");
}

mod a_waiter_in_a_minimal_wait_is_not_woken_for_each_cqe {
    use super::oracle;

    #[test]
    fn engine() {
        oracle::engine("order_minwait", &[]);
    }

    #[test]
    fn kernel() {
        oracle::kernel("order_minwait", &[]);
    }
}
