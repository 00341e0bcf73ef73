//! The suite: liburing's own tests, from Debian's source packages, built once.

use crate::apt::{self, Repository};
use crate::paths;
use anyhow::{Context, bail, ensure};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A release of liburing that there are manifests for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Release {
    pub(super) version: &'static str,
    repository: Repository,
}

/// Debian 12's.
pub(super) const OLDER: Release = Release { version: "2.3", repository: Repository::Installed };
/// Debian testing's, built here on Debian 12.
pub(super) const NEWER: Release = Release { version: "2.15", repository: Repository::Testing };

/// The release of a version.
pub(super) fn release(version: &str) -> Option<Release> {
    [OLDER, NEWER].into_iter().find(|release| release.version == version)
}

/// A test program.
#[derive(Debug, Clone)]
pub(super) struct Test {
    pub(super) name: String,
    pub(super) program: PathBuf,
}

/// All tests of the suite, fetched and built unless that was done before.
pub(super) fn tests(release: Release) -> anyhow::Result<Vec<Test>> {
    let folder = format!("liburing-{}", release.version);
    let dir = paths::cache().join(&folder);
    let built = dir.join("built");
    if !built.exists() {
        let source = fetch(release, &dir)?;
        build(&source)?;
        fs::write(&built, "")?;
    }
    let tests = find(&dir.join(folder).join("test"))?;
    ensure!(!tests.is_empty(), "no test was built; see {}", dir.display());
    Ok(tests)
}

fn fetch(release: Release, dir: &Path) -> anyhow::Result<PathBuf> {
    println!("fetching the source package liburing");
    let source = apt::fetch_source("liburing", release.repository, dir)?;
    let wanted = format!("liburing-{}", release.version);
    if !source.ends_with(&wanted) {
        bail!("this mirror offers {}, the manifests are for {wanted}", source.display());
    }
    Ok(source)
}

fn build(source: &Path) -> anyhow::Result<()> {
    apt::ensure_installed(&["build-essential"])?;
    let log = source.with_file_name("build.log");
    println!("building liburing and its tests (log: {})", log.display());
    let out = File::create(&log)?;
    // A test that does not compile here must not keep the others from running.
    for command in ["./configure", "make -j2 -C src", "make -j2 -k -C test"] {
        let status = Command::new("sh")
            .args(["-c", command])
            .current_dir(source)
            .stdout(out.try_clone()?)
            .stderr(out.try_clone()?)
            .status()
            .with_context(|| format!("starting {command}"))?;
        let may_fail = command.contains("-C test");
        ensure!(status.success() || may_fail, "`{command}` ended with {status}; see {}", log.display());
    }
    Ok(())
}

fn find(dir: &Path) -> anyhow::Result<Vec<Test>> {
    let mut tests = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
        let program = entry?.path();
        let (Some(stem), Some("t")) = (program.file_stem(), program.extension().and_then(|e| e.to_str())) else {
            continue;
        };
        tests.push(Test { name: stem.to_string_lossy().into_owned(), program });
    }
    tests.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(tests)
}
