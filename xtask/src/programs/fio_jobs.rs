//! fio: setup and register go through libc's `syscall`, enter is its own `syscall` instruction.

use super::program_cases::{Isolation, ProgramCases};
use crate::fio;
use anyhow::ensure;

/// Each job takes another path through the ring; all are verified.
const JOBS: &[(&str, &[&str])] = &[
    ("buffered, depth 1", &["--iodepth=1"]),
    ("buffered, depth 32", &["--iodepth=32"]),
    ("O_DIRECT, depth 1", &["--direct=1", "--iodepth=1"]),
    ("O_DIRECT, depth 32", &["--direct=1", "--iodepth=32"]),
    ("registered files", &["--registerfiles=1", "--iodepth=32"]),
    ("fixed buffers", &["--fixedbufs=1", "--iodepth=32"]),
    ("registered files, fixed buffers, O_DIRECT", &["--registerfiles=1", "--fixedbufs=1", "--direct=1", "--iodepth=32"]),
    ("sqthread_poll", &["--sqthread_poll=1", "--iodepth=32"]),
    ("sqthread_poll, registered files, fixed buffers", &["--sqthread_poll=1", "--registerfiles=1", "--fixedbufs=1", "--iodepth=32"]),
    ("force_async=1", &["--force_async=1", "--iodepth=32"]),
    ("force_async=4", &["--force_async=4", "--iodepth=32"]),
    ("fsync=16", &["--fsync=16", "--iodepth=32"]),
    ("fdatasync=16", &["--fdatasync=16", "--iodepth=32"]),
    ("nonvectored=0", &["--nonvectored=0", "--iodepth=32"]),
    ("nonvectored=1", &["--nonvectored=1", "--iodepth=32"]),
    ("1k blocks in batches", &["--bs=1k", "--iodepth=32", "--iodepth_batch=16", "--iodepth_batch_complete_min=4"]),
    ("two processes", &["--numjobs=2", "--iodepth=32"]),
    ("two threads", &["--numjobs=2", "--thread", "--iodepth=32"]),
];

/// The mode decides which thread writes. All other jobs run in the default mode.
const MODES: &[&str] = &["uringlet", "workers"];
const MODE_JOBS: &[(&str, &[&str])] = &[
    ("buffered, depth 1", &["--iodepth=1"]),
    ("buffered, depth 32", &["--iodepth=32"]),
    ("1k blocks in batches", &["--bs=1k", "--iodepth=32", "--iodepth_batch=16", "--iodepth_batch_complete_min=4"]),
    ("sqthread_poll, registered files, fixed buffers", &["--sqthread_poll=1", "--registerfiles=1", "--fixedbufs=1", "--iodepth=32"]),
    ("fsync=16, two threads", &["--fsync=16", "--numjobs=2", "--thread", "--iodepth=32"]),
];

/// Jobs for an ordinary user: most paths through the ring do not depend on rights.
const ORDINARY_JOBS: &[(&str, &[&str])] = &[
    ("buffered, depth 32", &["--iodepth=32"]),
    ("sqthread_poll, registered files, fixed buffers", &["--sqthread_poll=1", "--registerfiles=1", "--fixedbufs=1", "--iodepth=32"]),
];

pub(super) fn check(cases: &mut ProgramCases) -> anyhow::Result<()> {
    let plain = fio::command("io_uring", fio::VERIFIED);
    for &isolation in cases.isolations() {
        cases.needs_uringlet(isolation, &plain);
    }
    run_jobs(cases, JOBS, "adaptive", "");
    if !cases.is_native() {
        MODES.iter().for_each(|mode| run_jobs(cases, MODE_JOBS, mode, &format!("{mode}: ")));
    }
    if !rustix::process::geteuid().is_root() {
        // The jobs above have run as an ordinary user already.
        return Ok(());
    }
    let mut user = cases.as_ordinary_user()?;
    run_jobs(&mut user, ORDINARY_JOBS, "adaptive", "as user, ");
    cases.include(user)
}

fn run_jobs(cases: &mut ProgramCases, jobs: &[(&str, &[&str])], mode: &str, who: &str) {
    for (name, options) in jobs {
        for &isolation in cases.isolations() {
            let options: Vec<&str> = fio::VERIFIED.iter().chain(*options).copied().collect();
            let argv = fio::command("io_uring", &options);
            cases.case(&format!("{} {who}{name}", isolation.option()), |cases| verified(cases, isolation, mode, &argv));
        }
    }
}

fn verified(cases: &ProgramCases, isolation: Isolation, mode: &str, argv: &[String]) -> anyhow::Result<()> {
    let report = fio::parse(&cases.run_in_mode(isolation, mode, argv)?.ok()?)?;
    ensure!(report.written_kib > 0 && report.read_kib > report.written_kib, "written data was not read back: {report:?}");
    Ok(())
}
