//! As whom requests act, and what a ring may be used for, as the program has registered it; on the
//! engine and on the kernel's ring.

mod common;

use common::oracle::must_succeed;
use common::{compile, directory, finish, uringlet};

common::oracle::compare! {
    /// `IORING_REGISTER_RESTRICTIONS`.
    policy_restrictions,
    /// `IORING_REGISTER_BPF_FILTER`, restrictions of a task.
    policy_filters,
    /// `IORING_REGISTER_PERSONALITY`, with users that give up root.
    policy_personality,
}

/// Without a filter that kills: installing one sets `no_new_privs`.
#[test]
fn a_task_without_privileges_confines_itself_with_no_new_privs_only() {
    let directory = directory("policy_filters-privileges");
    let program = compile("cc", &directory, "policy_filters", &["policy_filters.c"], &[]);
    let output = finish(uringlet(&directory).arg("--").arg(program).arg("privileges").current_dir(&directory));
    must_succeed(&output, "policy_filters privileges");
}
