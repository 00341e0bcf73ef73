//! `xtask docs`: the documents of the repository as a book, whose links and commands are checked.

mod book;
mod commands;
mod links;
mod preprocess;

use crate::test_counts::{Failure, TestCounts};
use crate::{apt, build, paths, stream};
use anyhow::{Context, bail, ensure};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

const USAGE: &str = "\
usage: cargo xtask docs [--check] [--run]

Checks links and commands of the chapters in docs/SUMMARY.md, runs the commands where io_uring is
blocked, and makes the book (target/book/index.html) by mdBook, which is installed from crates.io
into target/ if it is missing.

  --check   check only: no command is run, and no book is made
  --run     check and run the commands: no book is made

A block of shell commands is run by this program unless a comment above it says why not:
<!-- not run: REASON --> or <!-- run by: COMMAND -->. Blocks in other languages, text apart, always
need such a comment.";

/// The book's maker.
const MDBOOK: &str = "0.5.4";

/// Packages of the programs in the chapters' commands.
const PACKAGES: &[&str] = &["fio", "qemu-utils", "gcc", "libc6-dev", "liburing-dev", "liburing2"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DocsTask {
    Check,
    Run,
    Book,
}

/// Does what the arguments ask for.
pub(crate) fn main(args: Vec<OsString>) -> anyhow::Result<TestCounts> {
    let mut task = DocsTask::Book;
    if args.first().is_some_and(|name| name == preprocess::NAME) {
        return preprocess::main(&args[1..]).map(|()| TestCounts::default());
    }
    for arg in args {
        match arg.to_str() {
            Some("--check") => task = DocsTask::Check,
            Some("--run") => task = DocsTask::Run,
            Some("--help" | "-h") => {
                println!("{USAGE}");
                return Ok(TestCounts::default());
            }
            _ => bail!("`{}` is not an option\n{USAGE}", arg.display()),
        }
    }
    let mut counts = check()?;
    if task != DocsTask::Check {
        apt::ensure_installed(PACKAGES)?;
        let uringlet = build::uringlet()?;
        counts.add(commands::run_all(&book::chapters()?, &uringlet)?);
    }
    if task == DocsTask::Book && counts.is_good() {
        make()?;
    }
    Ok(counts)
}

/// Checks all chapters, and the README.
fn check() -> anyhow::Result<TestCounts> {
    let chapters = book::chapters()?;
    let mut offences = links::check(&chapters)?;
    offences.extend(commands::check(&chapters)?);
    offences.iter().for_each(|offence| println!("{offence}"));
    println!("{} chapters: {} offences in links and commands", chapters.len(), offences.len());
    if offences.is_empty() {
        return Ok(TestCounts::PASSED);
    }
    Ok(TestCounts::failure(Failure::new("links and commands of the documents", "FAIL", &offences.join("\n"))))
}

fn make() -> anyhow::Result<()> {
    let mdbook = mdbook()?;
    let target = paths::target().join("book");
    let target = target.to_str().context("the build folder's path is not UTF-8")?;
    stream::sh(mdbook.to_str().context("the build folder's path is not UTF-8")?, &["build", "docs", "--dest-dir", target])?;
    println!("the book: {target}/index.html");
    Ok(())
}

/// The path of mdBook. Installs it from crates.io if it is missing.
fn mdbook() -> anyhow::Result<PathBuf> {
    let root = paths::cache().join("tools");
    let program = root.join("bin/mdbook");
    let is_right = |out: std::process::Output| String::from_utf8_lossy(&out.stdout).contains(MDBOOK);
    if Command::new(&program).arg("--version").output().is_ok_and(is_right) {
        return Ok(program);
    }
    println!("installing mdBook {MDBOOK} from crates.io");
    let root = root.to_str().context("the cache's path is not UTF-8")?;
    stream::sh("cargo", &["install", "mdbook", "--version", MDBOOK, "--locked", "--root", root])?;
    ensure!(program.exists(), "cargo has left no {}", program.display());
    Ok(program)
}
