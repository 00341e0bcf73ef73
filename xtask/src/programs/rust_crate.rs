//! A Rust program on the `io-uring` crate, in its own workspace: `conformance/rust-io-uring`. With
//! glibc it makes its calls through libc, with musl it is a static PIE.

use super::program_cases::ProgramCases;
use crate::rust_target::{self, MUSL};
use crate::{paths, stream};
use anyhow::Context;

pub(super) fn check(cases: &mut ProgramCases) -> anyhow::Result<()> {
    let program = build(&[])?;
    cases.needs_its_ring("", &program)?;
    if let Err(why) = rust_target::ensure(MUSL) {
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
