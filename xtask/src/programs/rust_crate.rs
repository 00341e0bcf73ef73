//! A Rust program on the `io-uring` crate, in its own workspace: `conformance/rust-io-uring`. With
//! glibc it makes its calls through libc, with musl it is a static PIE.

use super::program_cases::ProgramCases;
use crate::{paths, stream};
use anyhow::Context;
use std::process::Command;

pub(super) const MUSL: &str = "x86_64-unknown-linux-musl";

pub(super) fn check(cases: &mut ProgramCases) -> anyhow::Result<()> {
    let program = build(&[])?;
    cases.needs_its_ring("", &program)?;
    if let Err(why) = ensure_target(MUSL) {
        cases.skip("linked statically with musl", &format!("{why:#}"));
        return Ok(());
    }
    let program = build(&["--target", MUSL])?;
    cases.needs_its_ring("musl: ", &program)
}

/// Builds it and returns the program's path.
fn build(options: &[&str]) -> anyhow::Result<String> {
    let manifest = paths::root().join("conformance/rust-io-uring/Cargo.toml");
    let target = paths::cache().join("rust-io-uring");
    let target = target.to_str().context("the cache's path is not UTF-8")?;
    let manifest = manifest.to_str().context("the checkout's path is not UTF-8")?;
    let fixed = ["build", "--release", "--locked", "--quiet", "--manifest-path", manifest, "--target-dir", target];
    stream::sh("cargo", &[&fixed, options].concat())?;
    let folder = options.last().map(|target| format!("{target}/")).unwrap_or_default();
    Ok(format!("{target}/{folder}release/rust-io-uring"))
}

/// Installs the standard library for the target, unless it is there.
pub(super) fn ensure_target(target: &str) -> anyhow::Result<()> {
    let folder = Command::new("rustc").args(["--print", "target-libdir", "--target", target]).output().context("starting rustc")?;
    let folder = String::from_utf8_lossy(&folder.stdout).trim().to_owned();
    if std::fs::read_dir(&folder).is_ok_and(|mut files| files.next().is_some()) {
        return Ok(());
    }
    stream::sh("rustup", &["target", "add", target]).with_context(|| format!("the Rust target {target} is needed"))
}
