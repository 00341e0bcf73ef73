//! Threads of changing identities on one pool of files through io_uring: each access is compared
//! with a plain one by the same thread, each byte and each CQE is accounted for.
//!
//! A plain io_uring program: run directly it checks the kernel's ring, under `uringlet run` it
//! checks the engine. `cargo xtask torture` does both.

mod actor;
mod identity;
mod life;
mod numbers;
mod pool;
mod ring;
mod steps;

use anyhow::{Context, bail};
use life::LifePlan;
use pool::{COUNTED, FilePool, Ledger};
use ring::{AccountedRing, RingFlavor};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const USAGE: &str = "\
usage: torture [--minutes N] [--seed N] [--lives N] [--jobs N] [--dir DIR]

Runs lives for N minutes (1), or so many lives: processes of about a second whose threads change their
identities and directories, open, create, write, cancel, fork, close and replace numbers, on rings of
their own and on a shared one. The first life has seed --seed (1), the next one the next seed; --jobs at
a time (one per CPU). Files are made in DIR (the current directory), which all users must be able to
reach. As root it changes users; otherwise that part is left out.

Exit status: 0 all as expected, 1 not, 77 io_uring is not available, 130 interrupted.";

const NO_RING: u8 = 77;
const INTERRUPTED: u8 = 130;
const REPORT_INTERVAL: Duration = Duration::from_secs(10);
const MINUTE: f64 = 60.0;

static STOP: AtomicBool = AtomicBool::new(false);

#[derive(Debug)]
struct TortureArgs {
    length: Duration,
    seed: u64,
    lives: u64,
    jobs: u64,
    dir: PathBuf,
    /// This process is a life.
    is_life: bool,
}

/// What all lives add up to.
#[derive(Debug, Default)]
struct Totals {
    lives: AtomicU64,
    counts: [AtomicU64; COUNTED.len()],
    failures: Mutex<Vec<String>>,
}

fn main() -> ExitCode {
    match parse().and_then(|args| args.map_or(Ok(ExitCode::SUCCESS), |args| run(&args))) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("torture: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn parse() -> anyhow::Result<Option<TortureArgs>> {
    use lexopt::prelude::*;
    let jobs = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let mut args = TortureArgs { length: Duration::from_secs(60), seed: 1, lives: u64::MAX, jobs, dir: PathBuf::from("."), is_life: false };
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("help") | Short('h') => {
                println!("{USAGE}");
                return Ok(None);
            }
            Long("minutes") => args.length = Duration::from_secs_f64(MINUTE * parser.value()?.parse::<f64>()?),
            Long("seed") => args.seed = parser.value()?.parse()?,
            Long("lives") => (args.lives, args.length) = (parser.value()?.parse()?, Duration::MAX),
            Long("jobs") => args.jobs = parser.value()?.parse::<u64>()?.max(1),
            Long("dir") => args.dir = parser.value()?.into(),
            // For its own use.
            Long("life") => (args.seed, args.is_life) = (parser.value()?.parse()?, true),
            other => bail!("{}\n{USAGE}", other.unexpected()),
        }
    }
    Ok(Some(args))
}

extern "C" fn stop(_signal: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

fn run(args: &TortureArgs) -> anyhow::Result<ExitCode> {
    if args.is_life {
        LifePlan::of(args.seed).live(&args.dir)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Err(error) = AccountedRing::new(RingFlavor::Plain) {
        eprintln!("torture: no io_uring here: {error}");
        return Ok(ExitCode::from(NO_RING));
    }
    let handler: extern "C" fn(libc::c_int) = stop;
    // SAFETY: the handler stores to an atomic, nothing else.
    unsafe { libc::signal(libc::SIGINT, handler as libc::sighandler_t) };
    let started = Instant::now();
    let (totals, next) = (Totals::default(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let player = || {
            while !STOP.load(Ordering::Relaxed) && started.elapsed() < args.length {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= args.lives {
                    break;
                }
                play(args, args.seed + index, &totals);
            }
        };
        let players: Vec<_> = (0..args.jobs).map(|_| scope.spawn(player)).collect();
        let mut told = started;
        while !players.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            std::thread::sleep(Duration::from_millis(20));
            if told.elapsed() > REPORT_INTERVAL {
                told = Instant::now();
                // The reader may be gone.
                let _ = writeln!(io::stderr(), "torture: {:.0} s, {}", started.elapsed().as_secs_f64(), totals.describe());
            }
        }
    });
    Ok(totals.summary(args, started))
}

/// One life, on files of its own.
fn play(args: &TortureArgs, seed: u64, totals: &Totals) {
    let dir = args.dir.join(format!("torture-{}-{seed}", std::process::id()));
    let lived = prepare(&dir).and_then(|ledger| {
        let lived = LifePlan::of(seed).watch(&dir, ledger);
        for (total, count) in totals.counts.iter().zip(&ledger.counts) {
            total.fetch_add(count.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        lived
    });
    totals.lives.fetch_add(1, Ordering::Relaxed);
    if let Err(error) = lived {
        let report = format!("torture: FAILED: life {seed}: {error:#}; again: torture --seed {seed} --lives 1");
        totals.failures.lock().unwrap_or_else(PoisonError::into_inner).push(report);
        STOP.store(true, Ordering::Relaxed);
        return;
    }
    let _ = std::fs::remove_dir_all(dir);
}

fn prepare(dir: &Path) -> anyhow::Result<&'static Ledger> {
    FilePool::at(dir).create().with_context(|| format!("making the files in {}", dir.display()))?;
    Ledger::map(&dir.join("ledger"))
}

impl Totals {
    fn describe(&self) -> String {
        let counts = COUNTED.iter().zip(&self.counts).map(|(name, count)| format!(", {} {name}", count.load(Ordering::Relaxed)));
        format!("{} lives{}", self.lives.load(Ordering::Relaxed), counts.collect::<String>())
    }

    fn summary(&self, args: &TortureArgs, started: Instant) -> ExitCode {
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let how = if failures.is_empty() { "all as expected" } else { "NOT as expected" };
        for failure in failures.iter() {
            println!("{failure}");
        }
        println!("torture: seeds from {}, {:.0} s, {}: {how}", args.seed, started.elapsed().as_secs_f64(), self.describe());
        match (failures.is_empty(), STOP.load(Ordering::Relaxed)) {
            (true, false) => ExitCode::SUCCESS,
            (true, true) => ExitCode::from(INTERRUPTED),
            (false, _) => ExitCode::FAILURE,
        }
    }
}
