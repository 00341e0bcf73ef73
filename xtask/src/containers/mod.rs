//! `xtask containers`: programs in real OCI containers (crun), with the filters that Docker and
//! podman set by default, as they are told to get the engine there.

mod built_image;
mod compose;
pub(crate) mod container;
mod dockerfile;
mod examples;
pub(crate) mod images;
mod kubernetes;
pub(crate) mod profile;
mod subjects;
mod tools;
pub(crate) mod ways;

use crate::apt;
use crate::programs::program_cases::ProgramCases;
use crate::test_counts::TestCounts;
use anyhow::{bail, ensure};
use images::{Root, Tarball};
use profile::ProfileOf;
use std::ffi::OsString;
use subjects::{Coverage, SUBJECTS};
use ways::Yard;

const USAGE: &str = "\
usage: cargo xtask containers [--whole] [--built] [NAME...]

Runs programs in containers of crun with the default seccomp profiles of Docker and podman, as root and as an
ordinary user, with and without new privileges, with a read-only root: without uringlet, then by each way in.
Needs root; installs what is missing by package name and makes roots of Debian 12 and testing once.
  --whole   each way in with each combination
  --built   take the tarball of `cargo xtask deb` that is there";

pub(crate) const PACKAGES: &[&str] = &["crun", "mmdebstrap", "golang-github-containers-common", "python3-yaml", "util-linux"];

/// The files of `packaging/container`.
const EXAMPLES: &str = "examples";
/// What uringlet says.
const TOOLS: &str = "tools";

fn names_known() -> impl Iterator<Item = &'static str> {
    SUBJECTS.iter().map(|subject| subject.name).chain([TOOLS, EXAMPLES])
}

/// Runs the wanted programs and counts.
pub(crate) fn main(args: Vec<OsString>) -> anyhow::Result<TestCounts> {
    use lexopt::prelude::*;
    let mut coverage = Coverage::Short;
    let mut tarball = Tarball::Build;
    let mut names = Vec::new();
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("help") | Short('h') => {
                let known: Vec<_> = names_known().collect();
                println!("{USAGE}\n\nnames: {}", known.join(" "));
                return Ok(TestCounts::default());
            }
            Long("whole") => coverage = Coverage::Whole,
            Long("built") => tarball = Tarball::Keep,
            Value(name) => names.push(name.string()?),
            other => bail!("{}\n{USAGE}", other.unexpected()),
        }
    }
    for name in &names {
        ensure!(names_known().any(|known| known == name), "there is no `{name}` here\n{USAGE}");
    }
    let is_wanted = |name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name);
    ensure!(rustix::process::geteuid().is_root(), "containers can be started by root only");
    apt::ensure_installed(PACKAGES)?;
    let mut cases = ProgramCases::new("containers", None)?;
    let mut yard = Yard::prepare(tarball)?;
    let root = yard.root(Root::STABLE)?;
    [ProfileOf::Docker, ProfileOf::Podman].iter().try_for_each(|profile| yard.probe(&cases, &root, *profile))?;
    for subject in SUBJECTS.iter().filter(|subject| is_wanted(subject.name)) {
        subjects::check(&mut cases, &mut yard, subject, coverage)?;
    }
    if is_wanted(TOOLS) {
        tools::check(&mut cases, &mut yard)?;
    }
    if is_wanted(EXAMPLES) {
        examples::check(&mut cases, &mut yard);
    }
    yard.remove()?;
    let counts = cases.finish()?;
    println!("{counts}");
    Ok(counts)
}
