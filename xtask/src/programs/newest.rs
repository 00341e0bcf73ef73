//! `xtask programs --newest`: programs of Debian testing in containers with Docker's profile,
//! without uringlet, with it, and their speed beside the kernel's ring and their own fallback.

use super::program_cases::{ALL_WELL, ProgramCases};
use crate::containers::images::{Root, Tarball};
use crate::containers::ways::silent;
use crate::job::Ending;
use crate::postgres::{IO_METHODS, IoMethod, Postgres, median};
use crate::test_counts::TestCounts;
use crate::{apt, build, containers, paths};
use anyhow::{Context, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

type Check = fn(&mut ProgramCases) -> anyhow::Result<()>;

const PROGRAMS: &[(&str, Check)] = &[("postgres", check_postgres), ("mariadb", check_mariadb), ("qemu", check_qemu)];

/// The longest script, on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(1200);
/// Rounds of one server each.
const ROUNDS: u32 = 3;

/// The names of the programs.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    PROGRAMS.iter().map(|(name, _)| *name)
}

/// Runs the wanted programs, all if none is named.
pub(super) fn main(names: &[String]) -> anyhow::Result<TestCounts> {
    ensure!(rustix::process::geteuid().is_root(), "containers can be started by root only");
    apt::ensure_installed(containers::PACKAGES)?;
    build::launcher()?;
    let mut counts = TestCounts::default();
    for (name, check) in PROGRAMS.iter().filter(|(name, _)| names.is_empty() || names.iter().any(|wanted| wanted == name)) {
        let mut cases = ProgramCases::new(name, None)?;
        cases.set_timeout(TIMEOUT);
        check(&mut cases)?;
        counts.add(cases.finish()?);
    }
    println!("{counts}");
    Ok(counts)
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

/// MariaDB has a fallback, so it works without a ring: it says what it uses.
fn check_mariadb(cases: &mut ProgramCases) -> anyhow::Result<()> {
    let containers = Postgres::prepare(cases, Root::testing("container-mariadb", "mariadb-server,liburing2"), Tarball::Release)?;
    let command = ["/check/mariadb.sh", "mariadbd"];
    cases.case("without uringlet: falls back to libaio", |cases| {
        let output = silent(containers.run(cases, &command, IoMethod::Worker)?)?;
        ends_well(&output, "falling back to libaio")
    });
    cases.case("LD_PRELOAD=…/liburinglet.so: rows, kill -9, recovery", |cases| {
        let output = silent(containers.run(cases, &command, IoMethod::Uringlet)?)?;
        ends_well(&output, "Using io_uring")
    });
    containers.remove()
}

fn check_qemu(cases: &mut ProgramCases) -> anyhow::Result<()> {
    let containers = Postgres::prepare(cases, Root::testing("container-qemu", "qemu-utils,liburing2"), Tarball::Release)?;
    let command = ["/check/qemu.sh"];
    cases.case("without uringlet: cannot open the image", |cases| {
        let run = containers.run(cases, &command, IoMethod::Worker)?;
        ensure!(matches!(run.ending, Ending::Exited(code) if code != 0), "it ended with {:?}", run.ending);
        let said = run.output.lines().find(|line| line.contains("aio=io_uring was specified, but is not available"));
        println!("    {}", said.with_context(|| run.tail())?);
        Ok(())
    });
    cases.case("LD_PRELOAD=…/liburinglet.so: 4,000 blocks written and read", |cases| {
        let output = silent(containers.run(cases, &command, IoMethod::Uringlet)?)?;
        ends_well(&output, "Run completed")
    });
    containers.remove()
}

/// All is well, and the program says these words, which are shown.
fn ends_well(output: &str, words: &str) -> anyhow::Result<()> {
    ensure!(output.contains(words) && output.trim().ends_with(ALL_WELL), "{output}");
    output.lines().filter(|line| line.contains(words)).take(1).for_each(|line| println!("    {line}"));
    Ok(())
}
