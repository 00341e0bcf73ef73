//! Node: libuv with UV_USE_IO_URING=1, a polled ring that its event loop watches with epoll. It
//! falls back to threads.

use super::program_cases::{ALL_WELL, Isolation, ProgramCases};
use crate::job::Ending;
use crate::{apt, paths};
use anyhow::ensure;
use std::process::Command;

const SIGSYS: i32 = 31;

pub(super) fn check(cases: &mut ProgramCases) -> anyhow::Result<()> {
    if Command::new("node").arg("--version").output().is_err() {
        apt::ensure_installed(&["nodejs"])?;
    }
    cases.set_env("UV_USE_IO_URING", "1");
    let script = paths::root().join("conformance/node-fs.mjs").to_string_lossy().into_owned();
    let argv = ["node", &script];
    // A real call kills it. A program that ends otherwise without uringlet never asked for a ring.
    if !cases.is_native() && cases.run_bare(Isolation::Kill, &argv)?.ending != Ending::Signalled(SIGSYS) {
        cases.skip("files through libuv", "this node's libuv does not use io_uring (1.45 and later do)");
        return Ok(());
    }
    cases.needs_uringlet(Isolation::Kill, &argv);
    for &isolation in cases.isolations() {
        cases.case(&format!("{} files through libuv", isolation.option()), |cases| {
            let output = cases.run(isolation, &argv)?.ok()?;
            ensure!(output.trim().ends_with(ALL_WELL), "{output}");
            Ok(())
        });
    }
    Ok(())
}
