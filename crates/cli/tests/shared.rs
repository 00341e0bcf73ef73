//! A ring that several processes use, on the engine and, where there is one, on the kernel's own ring.

mod common;

use std::process::{Command, Output};

/// The program's "no ring to be had".
const NO_RING: i32 = 77;

fn must_succeed(output: &Output) {
    assert!(output.status.success(), "{}\n{}{}", output.status, common::stdout(output), common::stderr(output));
}

#[test]
fn processes_share_a_ring() {
    let directory = common::directory("shared_ring-engine");
    let executable = common::compile("cc", &directory, "shared_ring", &["shared_ring.c"], &["-pthread"]);
    must_succeed(&common::finish(common::uringlet(&directory).arg("--").arg(executable).env("BLOCK_IO_URING", "1")));
}

#[test]
fn so_they_do_with_the_kernel() {
    let directory = common::directory("shared_ring-kernel");
    let executable = common::compile("cc", &directory, "shared_ring", &["shared_ring.c"], &["-pthread"]);
    let output = common::finish(&mut Command::new(executable));
    if output.status.code() != Some(NO_RING) {
        must_succeed(&output);
    }
}
