//! `xtask programs --newest`: programs of Debian testing in containers with Docker's profile,
//! without uringlet, with it, and their speed beside the kernel's ring and their own fallback.

use super::program_cases::{ALL_WELL, ProgramCases};
use super::ring_programs::RING_PROGRAMS;
use crate::containers::images::{Root, Tarball};
use crate::postgres::{IO_METHODS, IoMethod, Postgres, median};
use crate::test_counts::TestCounts;
use crate::{apt, build, containers, paths};
use anyhow::{Context, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The longest script, on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(1200);
/// Rounds of one server each.
const ROUNDS: u32 = 3;

const POSTGRES: &str = "postgres";

/// The names of the programs.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    [POSTGRES].into_iter().chain(RING_PROGRAMS.iter().map(|program| program.name))
}

/// Runs the wanted programs, all if none is named.
pub(super) fn main(names: &[String]) -> anyhow::Result<TestCounts> {
    ensure!(rustix::process::geteuid().is_root(), "containers can be started by root only");
    apt::ensure_installed(containers::PACKAGES)?;
    build::launcher()?;
    let mut counts = TestCounts::default();
    let is_wanted = |name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name);
    if is_wanted(POSTGRES) {
        counts.add(run(POSTGRES, check_postgres)?);
    }
    for program in RING_PROGRAMS.iter().filter(|program| is_wanted(program.name)) {
        counts.add(run(program.name, |cases| program.check(cases, ROUNDS))?);
    }
    println!("{counts}");
    Ok(counts)
}

fn run(name: &'static str, check: impl FnOnce(&mut ProgramCases) -> anyhow::Result<()>) -> anyhow::Result<TestCounts> {
    let mut cases = ProgramCases::new(name, None)?;
    cases.set_timeout(TIMEOUT);
    check(&mut cases)?;
    cases.finish()
}

fn check_postgres(cases: &mut ProgramCases) -> anyhow::Result<()> {
    let postgres = Postgres::prepare(cases, Root::TESTING, Tarball::Release)?;
    postgres.is_refused(cases);
    postgres.is_right(cases);
    let tests = regression_tests()?;
    cases.case("its own regression tests", |cases| {
        let mut container = postgres.container("postgres-regress.sh", IoMethod::Uringlet)?;
        container.mount(&tests, "/regress", true);
        let output = postgres.output(cases, &container)?;
        output.lines().filter(|line| line.starts_with('#')).for_each(|line| println!("    {line}"));
        ensure!(output.trim().ends_with(ALL_WELL), "{output}");
        Ok(())
    });
    for (script, unit) in [("postgres-scan.sh", "ms a scan"), ("postgres-bench.sh", "transactions/s of pgbench -S")] {
        cases.case(&format!("measured: {unit}"), |cases| {
            let figures = postgres.figures(cases, script, ROUNDS)?;
            for (method, figures) in IO_METHODS.iter().zip(&figures) {
                println!("    {method:?}: {:.0} of {figures:.0?}", median(figures).unwrap_or(f64::NAN));
            }
            Ok(())
        });
    }
    postgres.remove()
}

/// The folder of PostgreSQL's regression tests: from its source package, with the library that its
/// package for developers has.
fn regression_tests() -> anyhow::Result<PathBuf> {
    let folder = paths::cache().join("postgres-regress");
    let tests = folder.join("regress");
    if tests.join("regress.so").exists() {
        return Ok(tests);
    }
    let source = apt::fetch_source("postgresql-18", apt::Repository::Testing, &folder.join("source"))?;
    let package = folder.join("package");
    apt::unpack_testing("postgresql-server-dev-18", &package)?;
    paths::fresh_dir(&tests)?;
    copy_folder(&source.join("src/test/regress"), &tests)?;
    fs::copy(package.join("usr/lib/postgresql/18/lib/regress.so"), tests.join("regress.so")).context("copying regress.so")?;
    fs::remove_dir_all(folder.join("source"))?;
    fs::remove_dir_all(package)?;
    Ok(tests)
}

fn copy_folder(from: &Path, to: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("reading {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            fs::create_dir(&target)?;
            copy_folder(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
