//! `xtask publish`: the crates that programs use, as crates.io gets them.
//!
//! A package cannot contain packages, and the build of `uringlet-object` needs the sources of
//! `liburinglet.so`. So the crates are staged: those sources lie in a folder `object`, and their
//! manifests have another name, which the build script knows.

use crate::test_counts::TestCounts;
use crate::{build, paths, stream};
use anyhow::{Context, bail};
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

const USAGE: &str = "\
usage: cargo xtask publish [--really]

Stages the crates in target/publish and verifies each as its users get it (cargo publish --dry-run).
  --really  publishes them (needs a token of crates.io)";

/// What is published.
const PUBLISHED: [&str; 6] = ["abi", "sys", "reexec", "object", "ring", "uringlet"];
/// What `liburinglet.so` is built from.
const OBJECT: [&str; 5] = ["abi", "sys", "core", "ublk", "attach"];
/// The folder in `uringlet-object`, and the name of manifests there.
const PACKAGED: &str = "crates/object/object";
const PACKAGED_MANIFEST: &str = "Cargo.toml.in";
const LICENSES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

pub(crate) fn main(args: Vec<OsString>) -> anyhow::Result<TestCounts> {
    let mut options = vec!["publish", "--workspace", "--allow-dirty"];
    match args.as_slice() {
        [] => options.push("--dry-run"),
        [only] if only == "--really" => {}
        [only] if only == "--help" => {
            println!("{USAGE}");
            return Ok(TestCounts::default());
        }
        [first, ..] => bail!("`{}` is no option\n{USAGE}", first.display()),
    }
    let stage = paths::target().join("publish");
    fill(&stage)?;
    let mut cargo = Command::new("cargo");
    // Empty: the object is built from its packaged sources, whatever this checkout's cargo says.
    cargo.args(options).arg("--manifest-path").arg(stage.join("Cargo.toml")).env(build::OBJECT, "");
    cargo.arg("--target-dir").arg(paths::target().join("publish-target"));
    let done = stream::run(cargo, |_| ())?;
    Ok(if done.is_good() { TestCounts::PASSED } else { TestCounts::failure(done.failure("cargo publish")) })
}

fn fill(stage: &Path) -> anyhow::Result<()> {
    paths::fresh_dir(stage)?;
    workspace(stage, &PUBLISHED)?;
    for name in PUBLISHED {
        for license in LICENSES {
            copy(&paths::root().join(license), &stage.join("crates").join(name).join(license))?;
        }
    }
    // The lock is cut to these crates under the manifests' own names.
    let sources = paths::target().join("publish-object");
    paths::fresh_dir(&sources)?;
    workspace(&sources, &OBJECT)?;
    let manifest = sources.join("Cargo.toml");
    stream::sh(
        "cargo",
        &["update", "--workspace", "--offline", "--quiet", "--manifest-path", manifest.to_str().context("a path that is not UTF-8")?],
    )?;
    copy_tree(&sources, &stage.join(PACKAGED), true)
}

/// A workspace of these crates.
fn workspace(folder: &Path, crates: &[&str]) -> anyhow::Result<()> {
    let root = paths::root();
    for name in crates {
        copy_tree(&root.join("crates").join(name), &folder.join("crates").join(name), false)?;
    }
    copy(&root.join("Cargo.lock"), &folder.join("Cargo.lock"))?;
    let manifest = fs::read_to_string(root.join("Cargo.toml")).context("reading Cargo.toml")?;
    let members: Vec<String> = crates.iter().map(|name| format!("\"crates/{name}\"")).collect();
    fs::write(folder.join("Cargo.toml"), with_members(&manifest, &members.join(", "))).context("writing Cargo.toml")
}

/// The manifest of the workspace with other members.
fn with_members(manifest: &str, members: &str) -> String {
    let lines = manifest.lines().filter(|line| !line.starts_with("default-members"));
    let lines = lines.map(|line| if line.starts_with("members") { format!("members = [{members}]\n") } else { format!("{line}\n") });
    lines.collect()
}

/// Copies a folder but what cargo builds there; with `renames`, manifests get the packaged name.
fn copy_tree(from: &Path, to: &Path, renames: bool) -> anyhow::Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("reading {}", from.display()))? {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        if path.is_dir() {
            copy_tree(&path, &to.join(name), renames)?;
        } else {
            let name = if renames && name == "Cargo.toml" { PACKAGED_MANIFEST.into() } else { name };
            copy(&path, &to.join(name))?;
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to.parent().context("a file in a folder")?)?;
    fs::copy(from, to).with_context(|| format!("copying {} to {}", from.display(), to.display())).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_members_are_replaced() {
        let manifest = "[workspace]\nmembers = [\"a\", \"b\"]\ndefault-members = [\"a\"]\n[profile.release]\npanic = \"abort\"\n";
        assert_eq!(with_members(manifest, "\"a\""), "[workspace]\nmembers = [\"a\"]\n[profile.release]\npanic = \"abort\"\n");
    }
}
