//! `xtask harmless`: programs behave under `uringlet run` as they do without it.
//!
//! Each script of `conformance/harmless` runs plainly, under `uringlet run`, and under it inside
//! the filter that kills at a real io_uring call. Its outcome is its exit status and the lines that
//! begin with "= "; all three must be the same. A script that should be attached and is not fails.

mod compare;
mod testing_root;

use crate::programs::program_cases::ProgramCases;
use crate::test_counts::TestCounts;
use crate::{apt, build};
use anyhow::{bail, ensure};
use compare::Place;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const USAGE: &str = "\
usage: cargo xtask harmless [--short] [NAME...]

Runs programs plainly and under `uringlet run`, outside and inside the filter that blocks io_uring, and
compares what they do. Installs what is missing by package name (as root).
  --short   only the cases that take seconds";

/// A run of a script may take this long: CPython's longest test takes a minute on an idle machine.
const TIMEOUT: Duration = Duration::from_secs(900);

/// Where the script runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ground {
    Here,
    /// Debian testing, in a folder: a newer libc.
    Testing,
}

/// Programs whose behaviour is compared, by the script of that name.
struct Subject {
    name: &'static str,
    script: &'static str,
    ground: Ground,
    /// Looked for on the path. The packages are installed if one is missing.
    programs: &'static [&'static str],
    packages: &'static [&'static str],
    cases: &'static [HarmlessCase],
}

/// A run of the script: the word it gets, and whether it takes only seconds.
struct HarmlessCase {
    word: &'static str,
    is_short: bool,
}

const fn short(word: &'static str) -> HarmlessCase {
    HarmlessCase { word, is_short: true }
}

const fn long(word: &'static str) -> HarmlessCase {
    HarmlessCase { word, is_short: false }
}

const fn subject(
    name: &'static str,
    programs: &'static [&'static str],
    packages: &'static [&'static str],
    cases: &'static [HarmlessCase],
) -> Subject {
    Subject { name, script: name, ground: Ground::Here, programs, packages, cases }
}

/// The first four are what other libraries in LD_PRELOAD do; their packages hold no program.
const PRELOADED: &[&str] = &["libjemalloc2", "eatmydata", "faketime", "fakeroot"];
const PYTHON: &[&str] = &["python3", "libpython3.11-testsuite"];

const SUBJECTS: &[Subject] = &[
    subject("git", &["git"], &["git"], &[short("")]),
    subject("gcc", &["gcc", "make"], &["build-essential"], &[short("")]),
    subject("perl", &["perl"], &["perl"], &[short("")]),
    subject("preload", &[], PRELOADED, &[short("jemalloc"), short("eatmydata"), short("fakeroot"), long("faketime")]),
    subject(
        "python",
        &[],
        PYTHON,
        &[
            short("test_fcntl"),
            short("test_mmap"),
            long("test_posix"),
            long("test_signal"),
            long("test_os"),
            long("test_subprocess"),
            long("test_asyncio"),
        ],
    ),
    subject("cancel", &["gcc"], &["gcc", "libc6-dev"], &[long("")]),
    subject("npm", &["npm", "node"], &["npm"], &[long("")]),
    subject("java", &["javac"], &["default-jdk-headless"], &[long("")]),
    subject("go", &["go"], &["golang-go"], &[long("")]),
    subject("cargo", &["cargo"], &["cargo"], &[long("")]),
    subject("gdb", &["gdb", "gcc"], &["gdb", "gcc", "libc6-dev"], &[long("")]),
    subject("strace", &["strace"], &["strace"], &[long("")]),
    Subject {
        name: "cancel-testing",
        script: "cancel",
        ground: Ground::Testing,
        programs: &["mmdebstrap", "unshare"],
        packages: &["mmdebstrap", "util-linux"],
        cases: &[long("")],
    },
];

/// Runs the wanted subjects and counts.
pub(crate) fn main(args: Vec<OsString>) -> anyhow::Result<TestCounts> {
    use lexopt::prelude::*;
    let mut is_short = false;
    let mut names = Vec::new();
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("help") | Short('h') => {
                let known: Vec<_> = SUBJECTS.iter().map(|subject| subject.name).collect();
                println!("{USAGE}\n\nnames: {}", known.join(" "));
                return Ok(TestCounts::default());
            }
            Long("short") => is_short = true,
            Value(name) => names.push(name.string()?),
            other => bail!("{}\n{USAGE}", other.unexpected()),
        }
    }
    for name in &names {
        ensure!(SUBJECTS.iter().any(|subject| subject.name == name), "there is no `{name}` here\n{USAGE}");
    }
    let uringlet = build::uringlet()?;
    let mut counts = TestCounts::default();
    for subject in SUBJECTS.iter().filter(|subject| names.is_empty() || names.iter().any(|name| name == subject.name)) {
        let wanted: Vec<_> = subject.cases.iter().filter(|case| case.is_short || !is_short).collect();
        if !wanted.is_empty() {
            counts.add(check(subject, &wanted, &uringlet)?);
        }
    }
    println!("{counts}");
    Ok(counts)
}

/// Runs the cases of a subject. What cannot be installed here is skipped.
fn check(subject: &Subject, wanted: &[&HarmlessCase], uringlet: &Path) -> anyhow::Result<TestCounts> {
    let mut cases = ProgramCases::new(subject.name, Some(uringlet))?;
    cases.set_timeout(TIMEOUT);
    match prepare(subject, &cases, uringlet) {
        Ok(place) => wanted.iter().for_each(|case| compare::check(&mut cases, &place, case.word)),
        Err(why) => wanted.iter().for_each(|case| cases.skip(case.word, &format!("{why:#}"))),
    }
    cases.finish()
}

/// Installs what the subject needs.
fn prepare(subject: &Subject, cases: &ProgramCases, uringlet: &Path) -> anyhow::Result<Place> {
    if subject.programs.is_empty() || !subject.programs.iter().all(|program| is_found(program)) {
        apt::ensure_installed(subject.packages)?;
    }
    match subject.ground {
        Ground::Here => Ok(Place::here(subject.script, cases.dir(), uringlet)),
        Ground::Testing => testing_root::place(subject.script, uringlet),
    }
}

fn is_found(program: &str) -> bool {
    let mut look = Command::new("sh");
    look.args(["-c", "command -v \"$0\"", program]).stdout(Stdio::null());
    look.status().is_ok_and(|status| status.success())
}
