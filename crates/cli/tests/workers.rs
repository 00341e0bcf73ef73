//! io-wq as programs see it: how many workers there are, their names and CPUs, what a cancel finds,
//! and what happens where no thread can be started. Where Linux promises the same, the kernel's
//! ring is asked too.

mod common;

use common::oracle;

const PROGRAM: &str = "workers";

#[test]
fn worker_limits_are_kept_changed_and_reported() {
    oracle::engine(PROGRAM, &["limits"]);
}

#[test]
fn worker_limits_are_kept_under_load() {
    oracle::engine(PROGRAM, &["load"]);
}

#[test]
fn workers_run_on_the_registered_cpus() {
    oracle::engine(PROGRAM, &["affinity"]);
}

#[test]
fn a_cancel_finds_queued_and_running_requests() {
    oracle::engine(PROGRAM, &["cancels"]);
}

#[test]
fn a_cancel_ends_its_request_and_no_other() {
    oracle::engine(PROGRAM, &["races"]);
    oracle::kernel(PROGRAM, &["races"]);
}

#[test]
fn attached_rings_share_workers() {
    oracle::engine(PROGRAM, &["attached"]);
}

#[test]
fn a_ring_attaches_to_rings_of_its_kind() {
    oracle::engine(PROGRAM, &["attach-to"]);
    oracle::kernel(PROGRAM, &["attach-to"]);
}

#[test]
fn requests_complete_where_no_thread_can_be_started() {
    oracle::engine(PROGRAM, &["no-threads"]);
}

#[test]
fn idle_workers_end() {
    oracle::engine(PROGRAM, &["retire"]);
    oracle::kernel(PROGRAM, &["retire"]);
}
