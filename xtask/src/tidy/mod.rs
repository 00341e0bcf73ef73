//! `xtask tidy`: style as a test. What rustfmt and clippy do not look at.

mod layers;
mod ratchet;
mod source;
mod words;

use crate::place;
use crate::tally::{Failure, Tally};
use anyhow::{Context, bail, ensure};
use ratchet::Ratchet;
use source::Source;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

const USAGE: &str = "\
usage: cargo xtask tidy [--update [--allow-worse]]

Checks lengths of files and functions, where unsafe stands, the layers of the engine, and words that do not belong here.
  --update       take the numbers of unsafe blocks over into xtask/ratchet.txt, and shrink its lists of what is too long or
                 looks up to a higher layer
  --allow-worse  let --update also lengthen those lists";

/// Crates that may hold unsafe code: the fence, and the skins towards C and machine code.
const MAY_BE_UNSAFE: &[&str] = &["crates/sys", "crates/attach", "crates/liburing"];

/// What to do with the ratchet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Update {
    No,
    Shrink,
    AsFound,
}

/// Checks the checkout; prints every offence.
pub(crate) fn main(args: Vec<OsString>) -> anyhow::Result<Tally> {
    use lexopt::prelude::*;
    let mut update = Update::No;
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("help") | Short('h') => {
                println!("{USAGE}");
                return Ok(Tally::default());
            }
            Long("update") if update == Update::No => update = Update::Shrink,
            Long("update") => {}
            Long("allow-worse") => update = Update::AsFound,
            other => bail!("{}\n{USAGE}", other.unexpected()),
        }
    }
    let offences = check(&place::root(), update)?;
    offences.iter().for_each(|offence| println!("{offence}"));
    let failed = || Tally::failure(Failure::new("style", format!("{} offences", offences.len()), &offences.join("\n")));
    Ok(if offences.is_empty() { Tally::PASSED } else { failed() })
}

fn check(root: &Path, update: Update) -> anyhow::Result<Vec<String>> {
    let paths = tracked_files(root)?;
    let mut offences = Vec::new();
    let mut sources = Vec::new();
    for path in &paths {
        // Tracked, but deleted in the working tree; or no text.
        let Ok(text) = std::fs::read_to_string(root.join(path)) else { continue };
        offences.extend(words::check(path, &text));
        let is_ours = ["crates/", "xtask/", "conformance/"].iter().any(|room| path.starts_with(room));
        if is_ours && path.ends_with(".rs") {
            sources.push(Source::parse(path, &text)?);
        }
    }
    offences.extend(unsafe_outside_the_fence(&sources));
    let mut ratchet = Ratchet::read(&root.join("xtask/ratchet.txt"))?;
    if update != Update::No {
        ratchet.update(&sources, update == Update::AsFound)?;
    }
    offences.extend(ratchet.check(&sources));
    let functions: usize = sources.iter().map(|source| source.functions.len()).sum();
    println!("{} files, {functions} functions: {} offences", paths.len(), offences.len());
    Ok(offences)
}

/// What git tracks or would track: not what it ignores.
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

fn unsafe_outside_the_fence(sources: &[Source]) -> Vec<String> {
    let mut offences = Vec::new();
    // What stands in conformance/ plays a program of somebody else's.
    let is_inside = |source: &Source| source.path.starts_with("conformance/") || MAY_BE_UNSAFE.contains(&source.package());
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
        let inside = Source::parse("crates/sys/src/a.rs", text).unwrap();
        let outside = Source::parse("crates/core/src/a.rs", text).unwrap();
        assert_eq!(unsafe_outside_the_fence(&[inside]), Vec::<String>::new());
        assert_eq!(unsafe_outside_the_fence(&[outside]).len(), 1);
    }

    #[test]
    fn a_crate_outside_the_fence_forbids_unsafe() {
        let without = Source::parse("crates/core/src/lib.rs", "fn f() {}").unwrap();
        let with = Source::parse("crates/core/src/lib.rs", "#![forbid(unsafe_code)] fn f() {}").unwrap();
        assert_eq!(unsafe_outside_the_fence(&[without]).len(), 1);
        assert_eq!(unsafe_outside_the_fence(&[with]).len(), 0);
    }
}
