//! Random io_uring programs on the kernel's ring and on the engine: the completions, the files and
//! the memory must be the same.
//!
//! The program generates a scenario from a seed and plays it in two child processes: one on the
//! kernel's io_uring, one under `uringlet run` inside `xtask sandbox --kill`, where a real io_uring
//! call kills the process. It compares their transcripts. On a difference it plays both again, more
//! slowly. A scenario that still differs is shrunk to the steps that matter, and printed.

mod case;
mod compare;
mod fixture;
mod generate;
mod listed;
mod product;
mod scenario;
mod shrink;
mod traces;
mod worker;

use anyhow::{Context, bail};
use case::{Case, Dropped};
use compare::{Comparison, RunnerPair, ScenarioRunner, TRACE_FILE};
use scenario::ScenarioKind;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use traces::TracedRunners;

const USAGE: &str = "\
usage: differential [--seed N] [--count N] [--ops N] [--net|--recent|--all] [--jobs N] [--no-shrink] [--with OPTION]... [--uringlet PATH --xtask PATH]
       differential show --seed N [--ops N] [--net|--recent]      print a scenario
       differential native --seed N [--ops N] [--net|--recent]    play it on the kernel's ring
       differential traces [--seed N] [--count N] [--ops N] [--net|--recent|--all] [--jobs N]   compare traces
       differential ours --seed N [--ops N] [--net|--recent] [--with OPTION]...   play it on the engine

Plays --count scenarios (200) of about --ops requests (24), starting with seed --seed (1). With
--net most of them are requests of network servers: bundles, multishot, notifications, messages;
with --recent what Linux 6.7 to 6.18 brought: CQEs of both sizes, commands, futexes, registered waits.
With --all each seed is played three times: without these options and with each of them. A difference
that docs/differences.md lists and that can be recognized is counted, not printed.
`traces` plays each scenario three times: plainly, under `uringlet trace --kernel`, and on the engine
under `uringlet trace`. The first two must do the same, and both traces must show the same requests.
--with passes an option to `uringlet run`. Without --uringlet and --xtask their release is built
first.";

#[derive(Clone, Debug, Default)]
struct DifferentialArgs {
    command: Option<String>,
    seed: u64,
    count: u64,
    ops: u64,
    jobs: u64,
    is_unshrunk: bool,
    kind: ScenarioKind,
    /// Of all kinds.
    is_of_all: bool,
    /// Options of `uringlet run`.
    options: Vec<OsString>,
    uringlet: Option<PathBuf>,
    xtask: Option<PathBuf>,
    /// For the worker.
    quiet_ms: u64,
    dropped: Dropped,
}

fn main() -> ExitCode {
    match parse().and_then(|args| args.map_or(Ok(true), |args| run(&args))) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("differential: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn parse() -> anyhow::Result<Option<DifferentialArgs>> {
    use lexopt::prelude::*;
    let jobs = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let mut args = DifferentialArgs { seed: 1, count: 200, ops: 24, jobs, quiet_ms: 20, ..DifferentialArgs::default() };
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("help") | Short('h') => {
                println!("{USAGE}");
                return Ok(None);
            }
            Long("seed") => args.seed = parser.value()?.parse()?,
            Long("count") => args.count = parser.value()?.parse()?,
            Long("ops") => args.ops = parser.value()?.parse()?,
            Long("jobs") => args.jobs = parser.value()?.parse::<u64>()?.max(1),
            Long("net") => args.kind = ScenarioKind::Net,
            Long("recent") => args.kind = ScenarioKind::Recent,
            Long("all") => args.is_of_all = true,
            Long("with") => args.options.push(parser.value()?),
            Long("no-shrink") => args.is_unshrunk = true,
            Long("quiet-ms") => args.quiet_ms = parser.value()?.parse()?,
            Long("drop") => args.dropped = Dropped::parse(&parser.value()?.string()?)?,
            Long("uringlet") => args.uringlet = Some(parser.value()?.into()),
            Long("xtask") => args.xtask = Some(parser.value()?.into()),
            Value(word) if args.command.is_none() => args.command = Some(word.string()?),
            other => bail!("{}\n{USAGE}", other.unexpected()),
        }
    }
    Ok(Some(args))
}

fn run(args: &DifferentialArgs) -> anyhow::Result<bool> {
    let case = Case { seed: args.seed, ops: args.ops, kind: args.kind, dropped: args.dropped.clone() };
    match args.command.as_deref() {
        None => search(args),
        Some("traces") => search(args),
        Some("worker") => worker::play(&case.scenario(), Duration::from_millis(args.quiet_ms)).map(|()| true),
        Some("show") => {
            println!("{}", case.scenario());
            Ok(true)
        }
        Some("native") => {
            print!("{}", RunnerPair::native().play(&case, args.quiet_ms)?);
            Ok(true)
        }
        Some("ours") => {
            print!("{}", runners(args)?.ours.play(&case, args.quiet_ms)?);
            Ok(true)
        }
        Some(other) => bail!("there is no command `{other}`\n{USAGE}"),
    }
}

/// The paths of `uringlet` and `xtask`.
fn product(args: &DifferentialArgs) -> anyhow::Result<(PathBuf, PathBuf)> {
    match (&args.uringlet, &args.xtask) {
        (Some(uringlet), Some(xtask)) => Ok((uringlet.clone(), xtask.clone())),
        _ => product::build().context("building what is compared"),
    }
}

fn runners(args: &DifferentialArgs) -> anyhow::Result<RunnerPair> {
    let (uringlet, xtask) = product(args)?;
    let line = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
    let mut kernel: Vec<OsString> = vec![xtask.clone().into()];
    kernel.extend(line(&["sandbox", "--die-with-parent", "--"]));
    let mut ours: Vec<OsString> = vec![xtask.into()];
    ours.extend(line(&["sandbox", "--kill", "--die-with-parent", "--"]));
    ours.push(uringlet.into());
    ours.push("run".into());
    ours.extend_from_slice(&args.options);
    ours.push("--".into());
    Ok(RunnerPair::new(kernel, ours))
}

/// What is compared.
#[derive(Debug)]
enum Runners {
    /// What programs see.
    Rings(RunnerPair),
    /// What traces show.
    Traces(TracedRunners),
}

impl Runners {
    fn of(args: &DifferentialArgs) -> anyhow::Result<Self> {
        if args.command.is_none() {
            return runners(args).map(Self::Rings);
        }
        let traced = |mut line: Vec<OsString>, options: &[&str]| {
            line.extend(options.iter().chain(&["--json", "-s", "0", "-o", TRACE_FILE, "--"]).map(OsString::from));
            line
        };
        let (uringlet, xtask) = product(args)?;
        let sandbox = |options: &[&str], program: &PathBuf| {
            let mut line = vec![xtask.clone().into_os_string(), "sandbox".into()];
            line.extend(options.iter().map(OsString::from));
            line.extend(["--die-with-parent".into(), "--".into(), program.into(), "trace".into()]);
            line
        };
        // The name of the worker's directory is seen in traces.
        let runner = |before| ScenarioRunner::new(before, "traced");
        let kernel = runner(traced(sandbox(&[], &uringlet), &["--kernel"]));
        let ours = runner(traced(sandbox(&["--kill"], &uringlet), &[]));
        Ok(Self::Traces(TracedRunners { plain: runners(args)?.kernel, traced: RunnerPair { kernel, ours } }))
    }

    /// Compares, and prints what differs.
    fn compare(&self, case: &Case, is_unshrunk: bool) -> anyhow::Result<Comparison> {
        match self {
            Self::Rings(runners) => {
                let comparison = runners.compare(case)?;
                if comparison == Comparison::Differs {
                    println!("seed {} differs", case.name());
                    let case = if is_unshrunk { case.clone() } else { shrink::shrink(runners, case.clone())? };
                    println!("{}", runners.report(&case)?);
                }
                Ok(comparison)
            }
            Self::Traces(runners) => {
                let (comparison, lines) = runners.compare(case)?;
                if comparison == Comparison::Differs {
                    println!("seed {} is traced differently\n{}", case.name(), lines.join("\n"));
                }
                Ok(comparison)
            }
        }
    }
}

/// What the scenarios showed.
#[derive(Debug, Default)]
struct ScenarioCounts {
    same: u64,
    listed: u64,
    unsteady: Vec<String>,
    differ: Vec<String>,
}

impl ScenarioCounts {
    fn played(&self) -> u64 {
        self.same + self.listed + (self.unsteady.len() + self.differ.len()) as u64
    }
}

impl fmt::Display for ScenarioCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { same, listed, unsteady, differ } = self;
        write!(
            f,
            "{same} the same, {} differ {differ:?}, {listed} differ as listed, {} depend on timing {unsteady:?}",
            differ.len(),
            unsteady.len()
        )
    }
}

/// Plays all seeds. `false` if the engine differs from the kernel in any of them.
fn search(args: &DifferentialArgs) -> anyhow::Result<bool> {
    if let Some(errno) = product::no_kernel_ring() {
        println!("skipped: this kernel gives no ring to compare with ({errno})");
        return Ok(true);
    }
    let runners = Runners::of(args)?;
    let kinds: &[ScenarioKind] = if args.is_of_all { &ScenarioKind::ALL } else { &[args.kind] };
    let scenarios = args.count * kinds.len() as u64;
    let started = Instant::now();
    let next = AtomicU64::new(0);
    let counts = Mutex::new(ScenarioCounts::default());
    let player = || -> anyhow::Result<()> {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= scenarios {
                return Ok(());
            }
            let (seed, kind) = (args.seed + index / kinds.len() as u64, kinds[usize::try_from(index)? % kinds.len()]);
            let case = Case { seed, ops: args.ops, kind, dropped: Dropped::default() };
            let comparison = runners.compare(&case, args.is_unshrunk)?;
            let mut counts = counts.lock().expect("no player panics");
            match comparison {
                Comparison::Same => counts.same += 1,
                Comparison::Listed => counts.listed += 1,
                Comparison::Unsteady => counts.unsteady.push(case.name()),
                Comparison::Differs => counts.differ.push(case.name()),
            }
            if counts.played().is_multiple_of(100) {
                println!("{} of {scenarios} scenarios, {} s: {counts}", counts.played(), started.elapsed().as_secs());
            }
        }
    };
    std::thread::scope(|scope| {
        let players: Vec<_> = (0..args.jobs).map(|_| scope.spawn(player)).collect();
        players.into_iter().try_for_each(|player| player.join().expect("no player panics"))
    })?;
    let counts = counts.into_inner().expect("no player panics");
    println!("seeds {} to {}: {counts}; {} s", args.seed, args.seed + args.count - 1, started.elapsed().as_secs());
    Ok(counts.differ.is_empty())
}
