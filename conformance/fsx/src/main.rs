//! Random file operations through io_uring, each byte compared with a model in memory.
//!
//! A plain io_uring program: run directly it checks the kernel's ring, under `uringlet run` it
//! checks the engine. `cargo xtask fsx` does both, in every mode.

mod choose;
mod claim;
mod files;
mod model;
mod op;
mod ring;
mod round;
mod slots;

use anyhow::{Context, bail, ensure};
use files::ScratchDir;
use round::RoundPlan;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const USAGE: &str = "\
usage: fsx [--seed N] [--ops N] [--round N] [--jobs N] [--depth N] [--dir DIR]

Plays --ops operations (1,000,000) on files in DIR (the current directory), in rounds of --round
operations (50,000), --jobs of them at a time (two per CPU, as some wait for the disk), each on
files and a ring of its own. The first round has seed --seed (1), the next one the next seed.
--depth fixes the number of operations in flight (default: it changes, 1 to 32).

Exit status: 0 all as expected, 1 not, 77 io_uring is not available, 130 interrupted.";

/// Exit status without io_uring.
const NO_RING: u8 = 77;
const INTERRUPTED: u8 = 130;
/// No operation takes this long on any machine.
const HANG_TIMEOUT: Duration = Duration::from_secs(180);
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

static STOP: AtomicBool = AtomicBool::new(false);

#[derive(Debug)]
struct FsxArgs {
    seed: u64,
    ops: u64,
    round: u64,
    jobs: u64,
    depth: usize,
    dir: PathBuf,
}

fn main() -> ExitCode {
    match parse().and_then(|args| args.map_or(Ok(ExitCode::SUCCESS), |args| run(&args))) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("fsx: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn parse() -> anyhow::Result<Option<FsxArgs>> {
    use lexopt::prelude::*;
    let jobs = 2 * std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let mut args = FsxArgs { seed: 1, ops: 1_000_000, round: 50_000, jobs, depth: 0, dir: PathBuf::from(".") };
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("help") | Short('h') => {
                println!("{USAGE}");
                return Ok(None);
            }
            Long("seed") => args.seed = parser.value()?.parse()?,
            Long("ops") => args.ops = parser.value()?.parse()?,
            Long("round") => args.round = parser.value()?.parse::<u64>()?.max(1),
            Long("jobs") => args.jobs = parser.value()?.parse::<u64>()?.max(1),
            Long("depth") => args.depth = parser.value()?.parse()?,
            Long("dir") => args.dir = parser.value()?.into(),
            other => bail!("{}\n{USAGE}", other.unexpected()),
        }
    }
    ensure!(args.depth <= 32, "--depth is at most 32");
    Ok(Some(args))
}

extern "C" fn stop(_signal: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

fn run(args: &FsxArgs) -> anyhow::Result<ExitCode> {
    if let Err(error) = ring::new(ring::RingKind::Plain) {
        eprintln!("fsx: no io_uring here: {error}");
        return Ok(ExitCode::from(NO_RING));
    }
    let handler: extern "C" fn(libc::c_int) = stop;
    // SAFETY: the handler stores to an atomic, nothing else.
    unsafe { libc::signal(libc::SIGINT, handler as libc::sighandler_t) };
    let folder = ScratchDir::new(args.dir.join(format!("fsx-{}", std::process::id())))?;
    let can = round::abilities(&folder.0).context("what this filesystem can do")?;
    let rounds = args.ops.div_ceil(args.round);
    let jobs = args.jobs.min(rounds);
    let started = Instant::now();
    let [done, next, finished, sequence] = [const { AtomicU64::new(0) }; 4];
    let failures = Mutex::new(Vec::new());
    let player = |job: u64| {
        let plan = RoundPlan { can: &can, depth: args.depth, done: &done, stop: &STOP };
        while !STOP.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= rounds {
                break;
            }
            let (seed, ops) = (args.seed + index, args.round.min(args.ops - index * args.round));
            let played = ScratchDir::new(folder.0.join(job.to_string())).map_err(|error| format!("{error:#}"));
            match played.and_then(|mine| round::play(&plan, &mine, seed, ops)) {
                Ok(end) => _ = sequence.fetch_xor(end, Ordering::Relaxed),
                Err(report) => {
                    failures.lock().expect("no player panics").push((seed, report));
                    STOP.store(true, Ordering::Relaxed);
                }
            }
        }
        finished.fetch_add(1, Ordering::Relaxed);
    };
    std::thread::scope(|scope| {
        (0..jobs).for_each(|job| drop(scope.spawn(move || player(job))));
        watch(args, started, &done, || finished.load(Ordering::Relaxed) == jobs);
    });
    let failures = failures.into_inner().expect("no player panics");
    drop(folder);
    Ok(print_summary(args, started, (done.into_inner(), sequence.into_inner()), &failures))
}

/// Reports the progress until all is done. Ends the process if nothing completes any more.
fn watch(args: &FsxArgs, started: Instant, done: &AtomicU64, is_over: impl Fn() -> bool) {
    let (mut told, mut moved, mut last) = (started, started, 0);
    while !is_over() {
        std::thread::sleep(Duration::from_millis(20));
        let (now, count) = (Instant::now(), done.load(Ordering::Relaxed));
        if count != last {
            (moved, last) = (now, count);
        }
        if now - moved > HANG_TIMEOUT {
            eprintln!(
                "fsx: HANG_TIMEOUT: {count} operations, and none in {} s; again: fsx --seed {} --ops {}",
                HANG_TIMEOUT.as_secs(),
                args.seed,
                args.ops
            );
            std::process::exit(1);
        }
        if now - told > REPORT_INTERVAL {
            told = now;
            // The reader may be gone.
            let _ = writeln!(io::stderr(), "fsx: {count} of {} operations, {:.0} k/s", args.ops, rate(count, started));
        }
    }
}

/// Thousands per second.
fn rate(count: u64, started: Instant) -> f64 {
    count as f64 / started.elapsed().as_secs_f64() / 1000.0
}

fn print_summary(args: &FsxArgs, started: Instant, (done, sequence): (u64, u64), failures: &[(u64, String)]) -> ExitCode {
    for (seed, report) in failures {
        let ops = args.round.min(args.ops);
        let _ = writeln!(io::stdout(), "fsx: FAILED: seed {seed}, {report}again: fsx --jobs 1 --seed {seed} --ops {ops}");
    }
    // The sequence is the same for the same seed on every ring: otherwise a failure could not be
    // reproduced.
    let seeds = format!("seeds from {}, sequence {sequence:016x}", args.seed);
    let how = if failures.is_empty() { "all as expected" } else { "NOT as expected" };
    let took = started.elapsed().as_secs_f64();
    let _ = writeln!(io::stdout(), "fsx: {done} operations ({seeds}) in {took:.1} s, {:.0} k/s: {how}", rate(done, started));
    match (failures.is_empty(), STOP.load(Ordering::Relaxed)) {
        (true, false) => ExitCode::SUCCESS,
        (true, true) => ExitCode::from(INTERRUPTED),
        (false, _) => ExitCode::FAILURE,
    }
}
