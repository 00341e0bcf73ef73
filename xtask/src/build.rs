//! `xtask build`: the release, as `make install` takes it.

use crate::rust_target::{self, MUSL};
use crate::test_counts::TestCounts;
use crate::{paths, stream};
use anyhow::{Context, ensure};
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

const USAGE: &str = "\
usage: cargo xtask build

Builds into cargo's release folder: uringlet, liburinglet.so, liburing/liburing.so.2, liburinglet.a";

/// Builds all that users get.
pub(crate) fn main(args: Vec<OsString>) -> anyhow::Result<TestCounts> {
    if !args.is_empty() {
        println!("{USAGE}");
        ensure!(args == ["--help"], "`{}` is not an option", args[0].display());
        return Ok(TestCounts::default());
    }
    let uringlet = uringlet()?;
    stream::sh("cargo", &["build", "--release", "-p", "uringlet-liburing"])?;
    let release = |name: &str| text(&uringlet.with_file_name(name));
    // rustc cannot give versions to a shared object's symbols.
    stream::sh("crates/liburing/link.sh", &[&release("liburinglet_liburing.a")?, &release("liburing")?])?;
    let mut archive = Command::new("cargo");
    archive.args(["build", "--release", "-p", "uringlet-capi"]).env(OBJECT, embedded_object(&uringlet)?);
    let built = stream::run(archive, |_| ())?;
    ensure!(built.is_good(), "uringlet-capi does not build:\n{}", built.output());
    stream::sh("crates/capi/link.sh", &[&release("liburinglet_capi.a")?, &release("liburinglet.a")?])?;
    println!("built {}; liburinglet.so, liburing/liburing.so.2 and liburinglet.a beside it", uringlet.display());
    Ok(TestCounts::PASSED)
}

/// Names the object that the crate `uringlet-object` embeds.
pub(crate) const OBJECT: &str = "URINGLET_OBJECT";

/// The release of `liburinglet.so` as programs embed it, without its debugging information.
pub(crate) fn embedded_object(uringlet: &Path) -> anyhow::Result<PathBuf> {
    let built = uringlet.with_file_name("liburinglet_attach.so");
    let stripped = uringlet.with_file_name("embedded.so");
    let fresh = stripped.with_extension("fresh");
    stream::sh("strip", &["--strip-unneeded", "-o", &text(&fresh)?, &text(&built)?])?;
    // Cargo builds what embeds it anew if the file is newer.
    if fs::read(&stripped).ok() == fs::read(&fresh).ok() {
        fs::remove_file(&fresh)?;
    } else {
        fs::rename(&fresh, &stripped)?;
    }
    Ok(stripped)
}

fn text(path: &Path) -> anyhow::Result<String> {
    path.to_str().map(str::to_owned).context("the build folder's path is not UTF-8")
}

/// Builds the program, the library that it puts into others, and its benchmarks' programs. Returns
/// the path of `uringlet`.
pub(crate) fn uringlet() -> anyhow::Result<PathBuf> {
    packages(&["-p", "uringlet-attach", "-p", "uringlet-bench"])
}

/// The same without the benchmarks' programs.
pub(crate) fn launcher() -> anyhow::Result<PathBuf> {
    packages(&["-p", "uringlet-attach"])
}

fn packages(packages: &[&str]) -> anyhow::Result<PathBuf> {
    println!("building the release of uringlet");
    stream::sh("cargo", &[&["build", "--release"], packages].concat())?;
    // A link, not a copy: after a later build by cargo alone both names lead to the new file.
    let link = paths::target().join("release/liburinglet.so");
    remove(&link)?;
    symlink("liburinglet_attach.so", &link).context("naming liburinglet.so")?;
    program()
}

/// Builds `uringlet`: a static program at a fixed address, which needs no dynamic linker and no
/// relocation to start (decision 0044).
fn program() -> anyhow::Result<PathBuf> {
    const STATIC: [&str; 10] =
        ["rustc", "--release", "-p", "uringlet-cli", "--bin=uringlet", "--target", MUSL, "--", "-C", "relocation-model=static"];
    let uringlet = paths::target().join("release/uringlet");
    if let Err(why) = rust_target::ensure(MUSL) {
        println!("uringlet is linked with this machine's libc, and starts more slowly: {why:#}");
        stream::sh("cargo", &["build", "--release", "-p", "uringlet-cli"])?;
    } else {
        stream::sh("cargo", &STATIC)?;
        let built = paths::target().join(MUSL).join("release/uringlet");
        remove(&uringlet)?;
        // It looks for its library beside its file, so a symbolic link would not do.
        fs::hard_link(&built, &uringlet).with_context(|| format!("linking {}", built.display()))?;
    }
    ensure!(uringlet.exists(), "the build left no {}", uringlet.display());
    Ok(uringlet)
}

fn remove(file: &Path) -> anyhow::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error).with_context(|| format!("replacing {}", file.display())),
        _ => Ok(()),
    }
}
