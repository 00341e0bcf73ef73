//! `xtask demo`: fio's io_uring engine and PostgreSQL 18 where io_uring is blocked, without and
//! with uringlet, and their speed.

mod postgres;

use crate::containers::images::Root;
use crate::fio::{self, FioReport};
use crate::programs::program_cases::{Isolation, ProgramCases, ProgramRun};
use crate::test_counts::TestCounts;
use crate::{apt, build, containers};
use anyhow::{Context, ensure};
use std::ffi::OsString;
use std::fs;
use std::path::Path;

const USAGE: &str = "usage: cargo xtask demo\n\nInstalls what is missing by package name (as root), builds the release, makes a root of Debian testing with\nPostgreSQL 18, takes less than five minutes.";

/// Verified jobs: data is read back and compared.
const JOBS: &[(&str, &[&str])] = &[
    ("buffered, depth 1", &["--iodepth=1"]),
    ("buffered, depth 32", &["--iodepth=32"]),
    ("O_DIRECT, depth 1", &["--direct=1", "--iodepth=1"]),
    ("O_DIRECT, depth 32", &["--direct=1", "--iodepth=32"]),
    ("O_DIRECT, depth 32, registered files, fixed buffers", &["--direct=1", "--iodepth=32", "--registerfiles=1", "--fixedbufs=1"]),
];

/// Timed jobs, on a file in the page cache.
const RACES: &[(&str, &[&str])] = &[
    ("4k random reads, cached, depth 1", &["--rw=randread", "--bs=4k", "--iodepth=1"]),
    ("4k random reads, cached, depth 16", &["--rw=randread", "--bs=4k", "--iodepth=16"]),
    ("1k random writes, buffered, depth 1", &["--rw=randwrite", "--bs=1k", "--iodepth=1"]),
    ("1k random writes, buffered, depth 32", &["--rw=randwrite", "--bs=1k", "--iodepth=32"]),
];

const RACE: &[&str] = &["--name=race", "--size=64m", "--invalidate=0", "--runtime=2", "--time_based"];

/// Runs all parts; fails if one of them does not behave as printed.
pub(crate) fn main(args: Vec<OsString>) -> anyhow::Result<TestCounts> {
    if !args.is_empty() {
        println!("{USAGE}");
        ensure!(args == ["--help"], "`{}` is not an option", args[0].display());
        return Ok(TestCounts::default());
    }
    let is_root = rustix::process::geteuid().is_root();
    apt::ensure_installed(&["fio", "liburing2"])?;
    if is_root {
        apt::ensure_installed(containers::PACKAGES)?;
    }
    // Made while the release is built: its packages come from far away.
    let root = is_root.then(|| std::thread::spawn(|| Root::TESTING.layer()));
    let uringlet = build::launcher()?;
    let mut cases = ProgramCases::new("fio", Some(&uringlet))?;
    println!("\n{}", machine(cases.dir())?);
    println!("\n1. fio --ioengine=io_uring behind a filter like Docker's");
    refused(&mut cases);
    println!("\n2. the same fio, behind the same filter, under `uringlet run --`: random reads and writes, verified by crc32c");
    for (name, options) in JOBS {
        verified(&mut cases, name, options);
    }
    println!("\n3. operations per second, behind the same filter (the kernel's ring: without it)");
    race_all(&mut cases);
    let mut counts = cases.finish()?;
    let mut database = ProgramCases::new("postgres", None)?;
    match root {
        Some(root) => postgres::show(&mut database, root),
        None => database.skip("PostgreSQL 18 in a container", "containers are started by root"),
    }
    counts.add(database.finish()?);
    println!("\n{counts}");
    Ok(counts)
}

fn refused(cases: &mut ProgramCases) {
    cases.case("is refused", |cases| {
        let ran = cases.run_bare(Isolation::Docker, &fio::command("io_uring", fio::VERIFIED))?;
        let complaint = ran.output.lines().find(|line| line.contains("Operation not permitted"));
        println!("    {}", complaint.context("fio did not complain about a missing permission")?);
        ensure!(fio::parse(&ran.output).is_err(), "fio worked all the same");
        Ok(())
    });
}

fn verified(cases: &mut ProgramCases, name: &str, options: &[&str]) {
    cases.case(name, |cases| {
        let options: Vec<&str> = fio::VERIFIED.iter().chain(options).copied().collect();
        let report = fio::parse(&cases.run(Isolation::Docker, &fio::command("io_uring", &options))?.ok()?)?;
        ensure!(report.read_kib > report.written_kib && report.written_kib > 0, "nothing was read back: {report:?}");
        Ok(())
    });
}

fn race_all(cases: &mut ProgramCases) {
    let warm = fio::command("psync", &["--name=race", "--size=64m", "--rw=read", "--bs=1m", "--invalidate=0"]);
    cases.case("a file of 64 MiB in the page cache", |cases| cases.run_outside(&warm)?.ok().map(drop));
    println!("   {:<38} {:>14} {:>18} {:>14}", "", "psync", "uringlet's ring", "kernel's ring");
    for (name, options) in RACES {
        let options: Vec<&str> = RACE.iter().chain(*options).copied().collect();
        let (plain, ring) = (fio::command("psync", &options), fio::command("io_uring", &options));
        let ours = speed(cases.run(Isolation::Docker, &ring));
        let cells = [
            cell(&speed(cases.run_bare(Isolation::Docker, &plain))),
            cell(&ours),
            // Many kernels and containers refuse this one.
            cell(&speed(cases.run_outside(&ring))),
        ];
        println!("   {name:<38} {:>14} {:>18} {:>14}", cells[0], cells[1], cells[2]);
        if let Err(error) = ours {
            cases.case(name, |_| Err(error));
        }
    }
}

fn speed(ran: anyhow::Result<ProgramRun>) -> anyhow::Result<FioReport> {
    fio::parse(&ran?.ok()?)
}

fn cell(report: &anyhow::Result<FioReport>) -> String {
    match report {
        Ok(report) => (report.read_iops + report.write_iops).to_string(),
        Err(_) => "refused".to_owned(),
    }
}

/// The machine that the numbers are measured on.
fn machine(dir: &Path) -> anyhow::Result<String> {
    let uname = rustix::system::uname();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let filesystem = filesystem_of(dir)?;
    let user = rustix::process::geteuid().as_raw();
    Ok(format!("Linux {}, {filesystem}, {cpus} CPUs, user {user}", uname.release().to_string_lossy()))
}

/// The type of the mount with the longest path above `dir`. In a chroot that mount may not be
/// listed.
fn filesystem_of(dir: &Path) -> anyhow::Result<String> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let mount = mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            Some((words.next()?, words.next()?))
        })
        .filter(|(point, _)| dir.starts_with(point))
        .max_by_key(|(point, _)| point.len());
    Ok(mount.map_or("a filesystem that is not listed", |(_, kind)| kind).to_owned())
}
