//! A Zig program on std.os.linux.IoUring, `conformance/zig-rings.zig`: static, without a libc, its
//! system calls inlined everywhere. The compiler comes as a Python package.

use super::program_cases::ProgramCases;
use crate::{apt, paths, stream};
use anyhow::Context;
use std::path::PathBuf;
use std::process::Command;

/// The standard library changes with each release.
const PACKAGE: &str = "ziglang==0.17.1";
const MODES: [&str; 3] = ["ReleaseSafe", "ReleaseFast", "ReleaseSmall"];

pub(super) fn check(cases: &mut ProgramCases) -> anyhow::Result<()> {
    let compiler = match ensure_compiler() {
        Ok(compiler) => compiler,
        Err(why) => {
            cases.skip("static programs by Zig", &format!("{why:#}"));
            return Ok(());
        }
    };
    for mode in MODES {
        let program = build(&compiler, mode)?;
        cases.needs_its_ring(&format!("{mode}: "), &program)?;
    }
    Ok(())
}

/// Fetches the compiler, unless it is there.
fn ensure_compiler() -> anyhow::Result<PathBuf> {
    let folder = paths::cache().join("zig").join(PACKAGE);
    let compiler = folder.join("ziglang/zig");
    if Command::new(&compiler).arg("version").output().is_ok_and(|output| output.status.success()) {
        return Ok(compiler);
    }
    let has_pip = Command::new("python3").args(["-m", "pip", "--version"]).output().is_ok_and(|output| output.status.success());
    if !has_pip {
        apt::ensure_installed(&["python3-pip"])?;
    }
    paths::fresh_dir(&folder)?;
    let folder = folder.to_str().context("the cache's path is not UTF-8")?;
    stream::sh("python3", &["-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, PACKAGE])?;
    Ok(compiler)
}

/// Builds the program, stripped, and returns its path.
fn build(compiler: &std::path::Path, mode: &str) -> anyhow::Result<String> {
    let source = paths::root().join("conformance/zig-rings.zig");
    let folder = paths::cache().join("zig");
    let program = folder.join(format!("rings-{mode}"));
    let text = |path: PathBuf| path.into_os_string().into_string().ok().context("the cache's path is not UTF-8");
    let (source, cache, program) = (text(source)?, text(folder.join("cache"))?, text(program)?);
    let (optimize, output) = (format!("-O{mode}"), format!("-femit-bin={program}"));
    let args = ["build-exe", &optimize, "-fstrip", "--cache-dir", &cache, "--global-cache-dir", &cache, &output, &source];
    stream::sh(compiler.to_str().context("the cache's path is not UTF-8")?, &args)?;
    Ok(program)
}
