//! What the engine's threads do with the identity of a submitter: a busy worker, an idle one, the
//! watcher, and those that an earlier identity leaves behind.
//!
//! The programs run as root and give something up; elsewhere they are skipped.

mod common;

use common::oracle;
use std::os::unix::fs::MetadataExt;

const PROGRAM: &str = "identity_engine";

fn on_engine(section: &str) {
    if std::fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0) {
        oracle::engine(PROGRAM, &[section]);
    } else {
        eprintln!("skipped: not root");
    }
}

fn on_both_rings(section: &str) {
    on_engine(section);
    oracle::kernel(PROGRAM, &[section]);
}

/// Filters do not see what the kernel's ring does.
#[test]
fn no_worker_does_what_the_submitters_filter_refuses() {
    on_engine("filter");
    on_engine("filter-of-one");
}

#[test]
fn chains_go_on_as_their_submitters_while_no_thread_is_inside() {
    on_both_rings("unattended");
}

#[test]
fn a_busy_worker_passes_no_rights_on() {
    on_both_rings("busy");
}

/// The kernel's workers show the user they were started as.
#[test]
fn threads_with_rights_of_before_end() {
    on_engine("stay");
}

#[test]
fn a_peer_is_told_the_submitters_user() {
    on_both_rings("connect");
}
