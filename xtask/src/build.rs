//! `xtask build`: the release, as `make install` takes it.

use crate::paths;
use crate::test_counts::TestCounts;
use anyhow::{Context, ensure};
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

const USAGE: &str = "\
usage: cargo xtask build

Builds into cargo's release folder: uringlet, liburinglet.so, liburing/liburing.so.2";

/// Builds all that users get.
pub(crate) fn main(args: Vec<OsString>) -> anyhow::Result<TestCounts> {
    if !args.is_empty() {
        println!("{USAGE}");
        ensure!(args == ["--help"], "`{}` is not an option", args[0].display());
        return Ok(TestCounts::default());
    }
    let uringlet = uringlet()?;
    crate::stream::sh("cargo", &["build", "--release", "-p", "uringlet-liburing"])?;
    let archive = uringlet.with_file_name("liburinglet_liburing.a");
    let library = uringlet.with_file_name("liburing");
    let path = |path: &PathBuf| path.to_str().map(str::to_owned).context("the build folder's path is not UTF-8");
    // rustc cannot give versions to a shared object's symbols.
    crate::stream::sh("crates/liburing/link.sh", &[&path(&archive)?, &path(&library)?])?;
    println!("built {}, liburinglet.so and liburing/liburing.so.2 beside it", uringlet.display());
    Ok(TestCounts::PASSED)
}

/// Builds the launcher and the library that it puts into programs. Returns the path of `uringlet`.
pub(crate) fn uringlet() -> anyhow::Result<PathBuf> {
    println!("building the release of uringlet");
    crate::stream::sh("cargo", &["build", "--release", "-p", "uringlet-cli", "-p", "uringlet-attach", "-p", "uringlet-bench"])?;
    let uringlet = paths::target().join("release/uringlet");
    ensure!(uringlet.exists(), "the build left no {}", uringlet.display());
    // A link, not a copy: after a later build by cargo alone both names lead to the new file.
    let link = uringlet.with_file_name("liburinglet.so");
    match fs::remove_file(&link) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error).context("replacing liburinglet.so"),
        _ => symlink("liburinglet_attach.so", &link).context("naming liburinglet.so")?,
    }
    Ok(uringlet)
}
