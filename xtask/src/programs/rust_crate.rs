//! A Rust program on the `io-uring` crate, in its own workspace: `conformance/rust-io-uring`.

use super::program_cases::ProgramCases;
use crate::paths;
use anyhow::{Context, ensure};

pub(super) fn check(cases: &mut ProgramCases) -> anyhow::Result<()> {
    let manifest = paths::root().join("conformance/rust-io-uring/Cargo.toml");
    let target = paths::cache().join("rust-io-uring");
    let target = target.to_str().context("the cache's path is not UTF-8")?;
    let manifest = manifest.to_str().context("the checkout's path is not UTF-8")?;
    crate::stream::sh("cargo", &["build", "--release", "--locked", "--quiet", "--manifest-path", manifest, "--target-dir", target])?;
    let program = format!("{target}/release/rust-io-uring");
    for &isolation in cases.isolations() {
        cases.needs_uringlet(isolation, &[&program]);
        cases.case(&format!("{} files, sockets, timeouts, links", isolation.option()), |cases| {
            let output = cases.run(isolation, &[&program])?.ok()?;
            ensure!(output.trim().ends_with("all well"), "{output}");
            Ok(())
        });
    }
    Ok(())
}
