//! A Rust program on the `io-uring` crate, in a workspace of its own: `conformance/rust-io-uring`.

use super::stage::Stage;
use crate::place;
use anyhow::{Context, ensure};

pub(super) fn check(stage: &mut Stage) -> anyhow::Result<()> {
    let manifest = place::root().join("conformance/rust-io-uring/Cargo.toml");
    let target = place::cache().join("rust-io-uring");
    let target = target.to_str().context("the cache's path is not UTF-8")?;
    let manifest = manifest.to_str().context("the checkout's path is not UTF-8")?;
    place::sh("cargo", &["build", "--release", "--locked", "--quiet", "--manifest-path", manifest, "--target-dir", target])?;
    let program = format!("{target}/release/rust-io-uring");
    for &walls in stage.walls() {
        stage.needs_uringlet(walls, &[&program]);
        stage.case(&format!("{} files, sockets, timeouts, links", walls.option()), |stage| {
            let output = stage.run(walls, &[&program])?.ok()?;
            ensure!(output.trim().ends_with("all well"), "{output}");
            Ok(())
        });
    }
    Ok(())
}
