//! `xtask tidy`: style as a test, for what rustfmt and clippy do not look at.

mod circles;
pub(crate) mod findings;
mod graph;
mod layers;
mod prose;
pub(crate) mod ratchet;
mod same_names;
mod sizes;
mod source;
mod vocabulary;
mod words;
mod workspace;

use crate::paths;
use crate::test_counts::{Failure, TestCounts};
use anyhow::{Context, bail, ensure};
use findings::TidyFindings;
use ratchet::{CASTS, Ratchet, Update};
use same_names::Exceptions;
use source::RustSource;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use vocabulary::Vocabulary;

const USAGE: &str = "\
usage: cargo xtask tidy [--update [--allow-worse]] [--list [PREFIX]]

Checks lengths of files and functions, where unsafe stands, the layers of the engine, import circles, types of one
name, the crates drawn in ARCHITECTURE.md, the width and the words of comments and documents.
  --update       write lower numbers, and numbers of unsafe blocks, to xtask/ratchet.txt
  --allow-worse  let --update also write higher numbers
  --list         print every offence in files that start with PREFIX, those that the ratchet allows included";

/// Crates that may hold unsafe code: the fence, and the skins towards C and machine code.
const MAY_BE_UNSAFE: &[&str] =
    &["crates/sys", "crates/attach", "crates/liburing", "crates/reexec", "crates/ring", "crates/capi", "crates/uringlet"];

/// Folders whose Rust files are ours.
const OURS: &[&str] = &["crates/", "xtask/", "conformance/", "bench/"];

/// Checks the checkout; prints every offence.
pub(crate) fn main(args: Vec<OsString>) -> anyhow::Result<TestCounts> {
    use lexopt::prelude::*;
    let mut update = Update::No;
    let mut list = None;
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("help") | Short('h') => {
                println!("{USAGE}");
                return Ok(TestCounts::default());
            }
            Long(name) if update.take_option(name) => {}
            Long("list") => list = Some(String::new()),
            Value(prefix) if list.is_some() => list = Some(prefix.string()?),
            other => bail!("{}\n{USAGE}", other.unexpected()),
        }
    }
    let offences = check(&paths::root(), update, list)?;
    offences.iter().for_each(|offence| println!("{offence}"));
    let failed = || TestCounts::failure(Failure::new("style", format!("{} offences", offences.len()), &offences.join("\n")));
    Ok(if offences.is_empty() { TestCounts::PASSED } else { failed() })
}

/// The list of numbers that only fall.
pub(crate) fn ratchet_path() -> std::path::PathBuf {
    paths::root().join("xtask/ratchet.txt")
}

fn check(root: &Path, update: Update, list: Option<String>) -> anyhow::Result<Vec<String>> {
    let read = |name: &str| std::fs::read_to_string(root.join(name)).with_context(|| format!("reading {name}"));
    let vocabulary = Vocabulary::parse(&read("xtask/retired-words.txt")?).context("xtask/retired-words.txt")?;
    let exceptions = Exceptions::parse(&read("xtask/same-names.txt")?).context("xtask/same-names.txt")?;
    let paths = tracked_files(root)?;
    let mut offences = Vec::new();
    let mut found = TidyFindings::default();
    let mut sources = Vec::new();
    for path in &paths {
        // A deleted file that git still tracks, or one that is no text.
        let Ok(text) = std::fs::read_to_string(root.join(path)) else { continue };
        offences.extend(words::check(path, &text));
        prose::measure(path, &text, &mut found);
        vocabulary.measure(path, &text, &mut found);
        if OURS.iter().any(|room| path.starts_with(room)) && path.ends_with(".rs") {
            sources.push(RustSource::parse(path, &text)?);
        }
    }
    offences.extend(unsafe_outside_the_fence(&sources));
    sizes::measure(&sources, &mut found);
    layers::measure(&sources, &mut found);
    let packages = workspace::read(root)?;
    workspace::measure(root, &packages, &exceptions, &mut found)?;
    offences.extend(workspace::check_drawing(&read("ARCHITECTURE.md")?, &packages));
    if let Some(prefix) = list {
        found.all_texts(&prefix).for_each(|text| println!("{text}"));
    }
    let mut ratchet = Ratchet::read(&ratchet_path(), |kind| kind != CASTS)?;
    if update != Update::No {
        ratchet.update(&found, update)?;
    }
    offences.extend(ratchet.check(&found));
    let functions: usize = sources.iter().map(|source| source.functions.len()).sum();
    println!("{} files, {functions} functions: {} offences", paths.len(), offences.len());
    Ok(offences)
}

/// Files that git tracks or would track, without those that it ignores.
fn tracked_files(root: &Path) -> anyhow::Result<Vec<String>> {
    let out = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"])
        .current_dir(root)
        .output()
        .context("starting git")?;
    ensure!(out.status.success(), "git ls-files: {}", String::from_utf8_lossy(&out.stderr));
    let list = String::from_utf8(out.stdout).context("a file's name is not UTF-8")?;
    Ok(list.split_terminator('\0').map(str::to_owned).collect())
}

fn unsafe_outside_the_fence(sources: &[RustSource]) -> Vec<String> {
    let mut offences = Vec::new();
    // Programs in conformance/ and bench/ play those of users, which call libc.
    let is_program = |source: &RustSource| ["conformance/", "bench/"].iter().any(|room| source.path.starts_with(room));
    let is_inside = |source: &RustSource| is_program(source) || MAY_BE_UNSAFE.contains(&source.package());
    for source in sources.iter().filter(|source| !is_inside(source)) {
        let is_root = ["src/lib.rs", "src/main.rs"].iter().any(|name| source.path.ends_with(name));
        if is_root && !source.forbids_unsafe {
            offences.push(format!("{}: lacks #![forbid(unsafe_code)]", source.path));
        }
        if source.is_product() && source.unsafe_words > 0 {
            offences.push(format!("{}: unsafe outside {}", source.path, MAY_BE_UNSAFE.join(", ")));
        }
    }
    offences
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_is_an_offence_outside_the_fence_only() {
        let text = "fn f() { unsafe { g() } }";
        let inside = RustSource::parse("crates/sys/src/a.rs", text).unwrap();
        let outside = RustSource::parse("crates/core/src/a.rs", text).unwrap();
        assert_eq!(unsafe_outside_the_fence(&[inside]), Vec::<String>::new());
        assert_eq!(unsafe_outside_the_fence(&[outside]).len(), 1);
    }

    #[test]
    fn a_crate_outside_the_fence_forbids_unsafe() {
        let without = RustSource::parse("crates/core/src/lib.rs", "fn f() {}").unwrap();
        let with = RustSource::parse("crates/core/src/lib.rs", "#![forbid(unsafe_code)] fn f() {}").unwrap();
        assert_eq!(unsafe_outside_the_fence(&[without]).len(), 1);
        assert_eq!(unsafe_outside_the_fence(&[with]).len(), 0);
    }
}
