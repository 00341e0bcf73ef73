//! What the engine's threads do with the identity of a submitter: a busy worker, an idle one, the
//! watcher, and those that an earlier identity leaves behind; and with its descriptor table.
//!
//! The programs run as root and give something up; elsewhere they are skipped.

mod common;

use common::oracle;
use std::os::unix::fs::MetadataExt;

fn on_engine(program: &str, section: &str) {
    if std::fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0) {
        oracle::engine(program, &[section]);
    } else {
        eprintln!("skipped: not root");
    }
}

fn on_both_rings(program: &str, section: &str) {
    on_engine(program, section);
    oracle::kernel(program, &[section]);
}

/// Filters do not see what the kernel's ring does.
#[test]
fn no_worker_does_what_the_submitters_filter_refuses() {
    on_engine("identity_engine", "filter");
    on_engine("identity_engine", "filter-of-one");
}

#[test]
fn chains_go_on_as_their_submitters_while_no_thread_is_inside() {
    on_both_rings("identity_engine", "unattended");
}

#[test]
fn a_busy_worker_passes_no_rights_on() {
    on_both_rings("identity_engine", "busy");
}

/// The kernel's workers show the user they were started as.
#[test]
fn threads_with_rights_of_before_end() {
    on_engine("identity_engine", "stay");
}

#[test]
fn a_peer_is_told_the_submitters_user() {
    on_both_rings("identity_engine", "connect");
}

/// The kernel's workers keep the table of before: a read by one of them reads another file.
#[test]
fn the_only_thread_takes_the_engine_to_its_new_descriptor_table() {
    on_engine("identity_files", "unshare");
    on_engine("identity_files", "close-range");
}

#[test]
fn a_table_of_its_own_before_the_first_ring_changes_nothing() {
    on_both_rings("identity_files", "before");
}

#[test]
fn a_thread_that_leaves_the_table_of_the_rings_touches_nothing_there() {
    on_engine("identity_files", "one-of-several");
}
