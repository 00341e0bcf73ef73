//! Python's package `liburing`: its own tests, from its source package, built here. Its compiled
//! modules call liburing's functions, linked into them.

use super::program_cases::ProgramCases;
use crate::{apt, paths, stream};
use anyhow::{Context, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The last release whose source package has tests that pass on the kernel's ring: those of
/// 2024.5.3 use constants that it lacks, 2026.3.30 comes without tests.
const VERSION: &str = "2024.4.22";
/// Tests that pass on the kernel's ring here.
const PASSES: &str = "49 passed";
/// Left out, as on the kernel's ring: the futex tests need the headers of Linux 6.7 when the
/// package is built, the last one a name server.
const LEFT_OUT: [&str; 3] = [
    "--ignore=test/futex_test.py",
    "--ignore=test/lib/futex_define_test.py",
    "--deselect=test/socket/getaddinfo_test.py::test_getaddrinfo",
];

pub(super) fn check(cases: &mut ProgramCases) -> anyhow::Result<()> {
    let folder = paths::cache().join("python-liburing").join(VERSION);
    if !folder.join("built").exists() {
        build(&folder)?;
        std::fs::write(folder.join("built"), "")?;
    }
    let (python, source) = (text(&folder.join("venv/bin/python"))?, text(&source(&folder))?);
    let tests = format!("cd {source} && exec {python} -m pytest -q -p no:cacheprovider {} test", LEFT_OUT.join(" "));
    let argv = ["sh", "-c", &tests];
    for &isolation in cases.isolations() {
        cases.needs_uringlet(isolation, &argv);
        cases.case(&format!("{} the package's own tests", isolation.option()), |cases| {
            let output = cases.run(isolation, &argv)?.ok()?;
            ensure!(output.contains(PASSES), "not {PASSES}:\n{output}");
            Ok(())
        });
    }
    Ok(())
}

fn source(folder: &Path) -> PathBuf {
    folder.join(format!("liburing-{VERSION}"))
}

fn text(path: &Path) -> anyhow::Result<String> {
    path.to_str().map(str::to_owned).context("the cache's path is not UTF-8")
}

/// Fetches the source package and builds it in an environment of its own: some minutes.
fn build(folder: &Path) -> anyhow::Result<()> {
    let has_venv = Command::new("python3").args(["-c", "import ensurepip"]).status().is_ok_and(|status| status.success());
    if !has_venv {
        apt::ensure_installed(&["python3-venv", "python3-dev"])?;
    }
    paths::fresh_dir(folder)?;
    let (venv, here) = (text(&folder.join("venv"))?, text(folder)?);
    let (pip, package) = (format!("{venv}/bin/pip"), format!("liburing=={VERSION}"));
    stream::sh("python3", &["-m", "venv", &venv])?;
    stream::sh(&pip, &["install", "--quiet", "Cython<3.1", "setuptools", "wheel", "pytest", "dynamic-import"])?;
    stream::sh(&pip, &["download", "--quiet", "--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--dest", &here, &package])?;
    stream::sh("tar", &["-xzf", &format!("{here}/liburing-{VERSION}.tar.gz"), "-C", &here])?;
    stream::sh(&pip, &["install", "--quiet", "--no-deps", "--no-build-isolation", &text(&source(folder))?])
}
