//! Node: libuv with UV_USE_IO_URING=1, a polled ring that its event loop watches with epoll. It falls back to threads.

use super::stage::{Stage, Walls};
use crate::job::Ending;
use crate::{apt, place};
use anyhow::ensure;
use std::process::Command;

const SIGSYS: i32 = 31;
const ALL_WELL: &str = "all well";

pub(super) fn check(stage: &mut Stage) -> anyhow::Result<()> {
    if Command::new("node").arg("--version").output().is_err() {
        apt::ensure_installed(&["nodejs"])?;
    }
    stage.set_env("UV_USE_IO_URING", "1");
    let script = place::root().join("conformance/node-fs.mjs").to_string_lossy().into_owned();
    let argv = ["node", &script];
    // A real call would be its death: one that ends in another way without uringlet never asked for a ring.
    if !stage.is_native() && stage.run_bare(Walls::Kill, &argv)?.ending != Ending::Signalled(SIGSYS) {
        stage.skip("files through libuv", "this node's libuv does not use io_uring (1.45 and later do)");
        return Ok(());
    }
    stage.needs_uringlet(Walls::Kill, &argv);
    for &walls in stage.walls() {
        stage.case(&format!("{} files through libuv", walls.option()), |stage| {
            let output = stage.run(walls, &argv)?.ok()?;
            ensure!(output.trim().ends_with(ALL_WELL), "{output}");
            Ok(())
        });
    }
    Ok(())
}
