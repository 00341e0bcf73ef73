//! `xtask programs`: third-party programs, unmodified, on the engine, where the kernel's io_uring
//! cannot be reached.
//!
//! The proof: without uringlet the same command fails in the sandbox, so it needs io_uring. With
//! uringlet its results are right there, so the ring was ours. Programs that fall back to plain
//! calls are also checked for having got their ring. Browsers use none: they are left alone.

mod browsers;
mod direct_ring;
mod embedding;
mod fio_jobs;
mod gvisor;
mod newest;
mod node;
mod openmetrics;
mod plocate;
mod postgres;
pub(crate) mod program_cases;
mod python;
mod python_liburing;
mod qemu;
mod ring_programs;
mod rust_crate;
mod sqlite;
mod stress_ng;
mod tokio_uring;
mod trace_page;
mod zig;

use crate::test_counts::TestCounts;
use crate::{apt, build};
use anyhow::{bail, ensure};
use program_cases::ProgramCases;
use std::ffi::OsString;

const USAGE: &str = "\
usage: cargo xtask programs [--native] [NAME...]
       cargo xtask programs --newest [NAME...]

Runs all programs but gVisor and the browsers, or the named ones; installs what is missing by package name
(as root).
  --native   on the kernel's own ring, without sandbox and uringlet: do the checks themselves hold?
  --newest   programs of Debian testing, in containers with Docker's profile, checked and timed (long)";

/// A program: its name, what to install, and its checks.
struct Program {
    name: &'static str,
    packages: &'static [&'static str],
    when: When,
    check: fn(&mut ProgramCases) -> anyhow::Result<()>,
}

/// When a program is run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    Always,
    /// Takes too long to be installed or built for a test of each change.
    Named,
}

const PROGRAMS: &[Program] = &[
    Program { name: "fio", packages: &["fio", "liburing2"], when: When::Always, check: fio_jobs::check },
    Program { name: "qemu", packages: &["qemu-utils"], when: When::Always, check: qemu::check },
    Program { name: "plocate", packages: &["plocate"], when: When::Always, check: plocate::check },
    Program { name: "stress-ng", packages: &["stress-ng"], when: When::Always, check: stress_ng::check },
    Program { name: "sqlite", packages: &["sqlite3"], when: When::Always, check: sqlite::check },
    Program { name: "postgres", packages: &["postgresql"], when: When::Named, check: postgres::check },
    Program { name: "rust", packages: &[], when: When::Always, check: rust_crate::check },
    Program { name: "embedding", packages: &["bash", "python3"], when: When::Always, check: embedding::check },
    Program { name: "ring", packages: &[], when: When::Always, check: direct_ring::check },
    Program { name: "runtimes", packages: &[], when: When::Named, check: embedding::check_runtimes },
    Program { name: "own-build", packages: &[], when: When::Named, check: embedding::check_own_build },
    Program { name: "zig", packages: &[], when: When::Always, check: zig::check },
    Program { name: "node", packages: &[], when: When::Always, check: node::check },
    Program { name: "python", packages: &["python3-venv"], when: When::Named, check: python::check },
    Program { name: "python-liburing", packages: &["gcc", "make"], when: When::Named, check: python_liburing::check },
    Program { name: "tokio-uring", packages: &[], when: When::Named, check: tokio_uring::check },
    Program { name: "gvisor", packages: &["fio", "liburing-dev", "gcc", "libc6-dev"], when: When::Named, check: gvisor::check },
    Program { name: "openmetrics", packages: &["fio", "python3-venv"], when: When::Named, check: openmetrics::check },
    Program { name: "trace-page", packages: &["chromium", "fio"], when: When::Named, check: trace_page::check },
    Program { name: "chromium", packages: &["chromium"], when: When::Named, check: browsers::check_chromium },
    Program { name: "firefox", packages: &["firefox-esr"], when: When::Named, check: browsers::check_firefox },
];

fn is_wanted(program: &Program, names: &[String]) -> bool {
    (names.is_empty() && program.when == When::Always) || names.iter().any(|name| name == program.name)
}

/// Runs the wanted programs and counts.
pub(crate) fn main(args: Vec<OsString>) -> anyhow::Result<TestCounts> {
    use lexopt::prelude::*;
    let (mut native, mut newest) = (false, false);
    let mut names = Vec::new();
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("help") | Short('h') => {
                let known: Vec<_> = PROGRAMS.iter().map(|program| program.name).collect();
                let new: Vec<_> = newest::names().collect();
                println!("{USAGE}\n\nprograms: {}\nof Debian testing: {}", known.join(" "), new.join(" "));
                return Ok(TestCounts::default());
            }
            Long("native") => native = true,
            Long("newest") => newest = true,
            Value(name) => names.push(name.string()?),
            other => bail!("{}\n{USAGE}", other.unexpected()),
        }
    }
    if newest {
        ensure!(!native, "--native and --newest exclude each other\n{USAGE}");
        let unknown = names.iter().find(|name| newest::names().all(|known| known != name.as_str()));
        ensure!(unknown.is_none(), "there is no program `{}` of Debian testing here", unknown.map_or("", String::as_str));
        return newest::main(&names);
    }
    for name in &names {
        ensure!(PROGRAMS.iter().any(|program| program.name == name), "there is no program `{name}` here");
    }
    let uringlet = if native { None } else { Some(build::uringlet()?) };
    let mut counts = TestCounts::default();
    for program in PROGRAMS.iter().filter(|program| is_wanted(program, &names)) {
        apt::ensure_installed(program.packages)?;
        let mut cases = ProgramCases::new(program.name, uringlet.as_deref())?;
        (program.check)(&mut cases)?;
        counts.add(cases.finish()?);
    }
    println!("{counts}");
    Ok(counts)
}
