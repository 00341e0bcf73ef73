//! `xtask deb`: the Debian package and a tarball, checked by lintian and in fresh roots.

mod contents;
mod package;
mod roots;
mod stage;

use crate::rust_target::{self, MUSL};
use crate::test_counts::{Failure, TestCounts};
use crate::{apt, build, paths, stream};
use anyhow::{Context, bail, ensure};
use package::{BuiltPackage, VERSION};
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const USAGE: &str = "\
usage: cargo xtask deb [--roots] [--only-roots]

Builds target/deb/uringlet_VERSION_amd64.deb and a tarball, and checks them: size, contents, lintian.
  --roots       also install it in fresh roots of Debian 12 and testing, use it there as an ordinary user
                where io_uring kills, and remove it (needs root)
  --only-roots  the same with the package that is there already";

pub(crate) fn main(args: Vec<OsString>) -> anyhow::Result<TestCounts> {
    let (mut with_roots, mut only_roots) = (false, false);
    for arg in args {
        match arg.to_str() {
            Some("--roots") => with_roots = true,
            Some("--only-roots") => only_roots = true,
            Some("--help") => {
                println!("{USAGE}");
                return Ok(TestCounts::default());
            }
            _ => bail!("`{}` is no option\n{USAGE}", arg.display()),
        }
    }
    let package = BuiltPackage::named();
    let mut counts = TestCounts::default();
    if !only_roots {
        make(&package)?;
        counts.add(case("size and contents", contents::check(&package)));
        counts.add(case("lintian", lintian(&package)));
    }
    if with_roots || only_roots {
        ensure!(package.deb.exists(), "{} is not there: run cargo xtask deb", package.deb.display());
        for suite in roots::SUITES {
            counts.add(case(&format!("root of {suite}"), roots::check(suite, &package.deb)));
        }
    }
    Ok(counts)
}

/// The tarball's path. It is built, or must be there.
pub(crate) fn tarball(is_built_anew: bool) -> anyhow::Result<PathBuf> {
    let package = BuiltPackage::named();
    if is_built_anew {
        make(&package)?;
    }
    ensure!(package.tarball.exists(), "{} is not there: run cargo xtask deb", package.tarball.display());
    Ok(package.tarball)
}

/// A check as one case.
fn case(name: &str, result: anyhow::Result<()>) -> TestCounts {
    match result {
        Ok(()) => {
            println!("{name}: ok");
            TestCounts::PASSED
        }
        Err(error) => {
            let why = format!("{error:#}");
            println!("{name}: {why}");
            TestCounts::failure(Failure::new(name, "failed", &why))
        }
    }
}

fn make(package: &BuiltPackage) -> anyhow::Result<()> {
    apt::ensure_installed(&["binutils", "dpkg-dev", "lintian"])?;
    // The package names no library that the program would need.
    rust_target::ensure(MUSL)?;
    build::main(vec![])?;
    let tree = paths::target().join("deb/tree");
    paths::fresh_dir(&tree)?;
    stage::fill(&tree)?;
    stage::describe(&tree)?;
    let tree = tree.to_str().context("the build folder's path is not UTF-8")?;
    let text = |path: &PathBuf| path.to_str().map(str::to_owned).context("the build folder's path is not UTF-8");
    stream::sh("dpkg-deb", &["--root-owner-group", "-Zxz", "--build", tree, &text(&package.deb)?])?;
    let rename = format!("s,^usr,uringlet-{VERSION},");
    let usr = ["--transform", &rename, "--owner=0", "--group=0", "--sort=name", "-C", tree, "-czf", &text(&package.tarball)?, "usr"];
    stream::sh("tar", &usr)?;
    println!("built {} ({} KiB) and {}", package.deb.display(), fs::metadata(&package.deb)?.len() >> 10, package.tarball.display());
    Ok(())
}

/// No error; warnings are shown.
fn lintian(package: &BuiltPackage) -> anyhow::Result<()> {
    let mut lintian = Command::new("lintian");
    lintian.args(["--allow-root", "--fail-on", "error"]).arg(&package.deb);
    let out = lintian.output().context("starting lintian")?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    print!("{text}");
    ensure!(out.status.success(), "lintian ended with {}:\n{text}{}", out.status, String::from_utf8_lossy(&out.stderr));
    Ok(())
}
