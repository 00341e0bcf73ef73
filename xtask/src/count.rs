//! `xtask count`: how many instructions the hottest calls take, compared with
//! `conformance/count/counts.txt`. The machine's load makes no difference to it.
//!
//! The program is `conformance/count/count.c`.

use crate::test_counts::{Failure, TestCounts};
use crate::{apt, paths, stream};
use anyhow::{Context, bail, ensure};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const USAGE: &str = "\
usage: cargo xtask count [--update] [--listing FILE]

Counts the instructions in user space of io_uring_enter(2) with a NOP, a read, a write and so on, of the release.
A path that takes over 10 % more than conformance/count/counts.txt says is a failure.
  --update        write the counts to that file
  --listing FILE  write the path and the address in liburinglet.so of each instruction to FILE (0: elsewhere)";

/// How much more than recorded is a failure, percent. Compilers differ by less.
const TOLERANCE: u64 = 10;
/// Settings of cargo under which the release is another one.
const PROFILE: &str = "CARGO_PROFILE_RELEASE_";

/// Instructions of each path.
type Counts = BTreeMap<String, u64>;

#[derive(Debug, Default)]
struct CountOptions {
    updates: bool,
    listing: Option<PathBuf>,
}

/// Counts, and compares or records.
pub(crate) fn main(args: Vec<OsString>) -> anyhow::Result<TestCounts> {
    let Some(options) = parse(args)? else {
        println!("{USAGE}");
        return Ok(TestCounts::default());
    };
    apt::ensure_installed(&["build-essential"])?;
    let counted = count(&options)?;
    let recorded_at = paths::root().join("conformance/count/counts.txt");
    let recorded = parse_counts(&fs::read_to_string(&recorded_at).context("reading counts.txt")?)?;
    print!("{}", table(&counted, &recorded));
    if let Some((setting, _)) = std::env::vars_os().find(|(name, _)| name.to_string_lossy().starts_with(PROFILE)) {
        println!("not compared: with {} set, this is not the release that was recorded", setting.display());
        return Ok(TestCounts { skipped: 1, ..TestCounts::default() });
    }
    if options.updates {
        fs::write(&recorded_at, counted.iter().map(|(path, count)| format!("{path} {count}\n")).collect::<String>())?;
        return Ok(TestCounts::PASSED);
    }
    Ok(compare(&counted, &recorded))
}

fn parse(args: Vec<OsString>) -> anyhow::Result<Option<CountOptions>> {
    use lexopt::prelude::*;
    let mut options = CountOptions::default();
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("help") | Short('h') => return Ok(None),
            Long("update") => options.updates = true,
            Long("listing") => options.listing = Some(std::path::absolute(parser.value()?)?),
            other => bail!("{}\n{USAGE}", other.unexpected()),
        }
    }
    Ok(Some(options))
}

/// Builds the release and the program, and runs it.
fn count(options: &CountOptions) -> anyhow::Result<Counts> {
    stream::sh("cargo", &["build", "--release", "--quiet", "-p", "uringlet-attach"])?;
    let library = paths::target().join("release/liburinglet_attach.so");
    let program = paths::target().join("count");
    let source = paths::root().join("conformance/count/count.c");
    let utf8 = |path: &PathBuf| path.to_str().map(str::to_owned).context("the build folder's path is not UTF-8");
    stream::sh("cc", &["-O2", "-Wall", "-o", &utf8(&program)?, &utf8(&source)?])?;
    let output = Command::new(&program).arg(library).arg(paths::target()).args(&options.listing).output()?;
    ensure!(output.status.success(), "count.c: {}", String::from_utf8_lossy(&output.stderr));
    parse_counts(&String::from_utf8(output.stdout)?)
}

/// A line for each path: its name and its count.
fn parse_counts(text: &str) -> anyhow::Result<Counts> {
    let line = |line: &str| {
        let (path, count) = line.split_once(' ')?;
        Some((path.to_owned(), count.parse().ok()?))
    };
    text.lines().map(|text| line(text).with_context(|| format!("`{text}` is not a name and a number"))).collect()
}

fn table(counted: &Counts, recorded: &Counts) -> String {
    let row = |(path, count): (&String, &u64)| match recorded.get(path) {
        Some(before) => format!("{path:<14} {count:>6}   recorded {before:>6}\n"),
        None => format!("{path:<14} {count:>6}   not recorded\n"),
    };
    counted.iter().map(row).collect()
}

/// A case for each path of either.
fn compare(counted: &Counts, recorded: &Counts) -> TestCounts {
    let mut counts = TestCounts::default();
    for path in counted.keys().chain(recorded.keys().filter(|path| !counted.contains_key(*path))) {
        let verdict = match (counted.get(path), recorded.get(path)) {
            (Some(count), Some(before)) if count * 100 > before * (100 + TOLERANCE) => format!("{count} instructions, {before} before"),
            (Some(_), Some(_)) => {
                counts.add(TestCounts::PASSED);
                continue;
            }
            (Some(_), None) => "not recorded: cargo xtask count --update".to_owned(),
            (None, _) => "not counted: cargo xtask count --update".to_owned(),
        };
        counts.add(TestCounts::failure(Failure::new(path, verdict, "")));
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_beyond_the_tolerance_and_unknown_paths_fail() {
        let recorded = parse_counts("nop 100\nread 200\ngone 1\n").unwrap();
        let counted = parse_counts("nop 110\nread 221\nnew 1\n").unwrap();
        let compared = compare(&counted, &recorded);
        let failed: Vec<_> = compared.failures.iter().map(|failure| failure.item.as_str()).collect();
        assert_eq!((compared.passed, failed), (1, vec!["new", "read", "gone"]));
        assert!(parse_counts("nop\n").is_err() && parse_counts("nop many\n").is_err());
        assert!(table(&counted, &recorded).contains("new                 1   not recorded"));
    }
}
