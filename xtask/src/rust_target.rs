//! Targets of Rust beside this machine's.

use crate::stream;
use anyhow::Context;
use std::process::Command;

/// Programs are linked statically with musl.
pub(crate) const MUSL: &str = "x86_64-unknown-linux-musl";

/// Installs the standard library for the target, unless it is there.
pub(crate) fn ensure(target: &str) -> anyhow::Result<()> {
    let folder = Command::new("rustc").args(["--print", "target-libdir", "--target", target]).output().context("starting rustc")?;
    let folder = String::from_utf8_lossy(&folder.stdout).trim().to_owned();
    if std::fs::read_dir(&folder).is_ok_and(|mut files| files.next().is_some()) {
        return Ok(());
    }
    stream::sh("rustup", &["target", "add", target]).with_context(|| format!("the Rust target {target} is needed"))
}
