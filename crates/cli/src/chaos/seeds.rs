//! All seeds, several at a time.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

use indicatif::{ProgressBar, ProgressStyle};
use uringlet_sys::fault_plan::DecisionId;

use super::args::ChaosArgs;
use super::run::{End, Runner};

/// A seed that breaks the program.
#[derive(Clone, Debug)]
pub(super) struct FailingSeed {
    pub(super) seed: u64,
    pub(super) end: End,
    /// What was done in that run.
    pub(super) decisions: Vec<DecisionId>,
}

/// What is known.
#[derive(Debug, Default)]
pub(super) struct TriedSeeds {
    pub(super) seeds: u64,
    /// Decisions of all runs.
    pub(super) decisions: u64,
    pub(super) failures: Vec<FailingSeed>,
}

/// Runs the program under each seed, until Ctrl-C.
pub(super) fn try_all(args: &ChaosArgs, runner: &Runner) -> Result<TriedSeeds, String> {
    let seeds = args.seeds();
    let next = AtomicU64::new(seeds.first);
    let bar = bar(seeds.last - seeds.first + 1);
    let mut tried = TriedSeeds::default();
    let (results, incoming) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..args.jobs() {
            let (results, next) = (results.clone(), &next);
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if !(seeds.first..=seeds.last).contains(&seed) || runner.stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let run = args.plan(seed, None).and_then(|plan| runner.run(Some(&plan)));
                    let is_over = run.is_err();
                    if results.send((seed, run)).is_err() || is_over {
                        return;
                    }
                }
            });
        }
        drop(results);
        for (seed, run) in incoming {
            let run = run.inspect_err(|_| next.store(u64::MAX, Ordering::Relaxed))?;
            if run.end == End::Stopped {
                continue;
            }
            tried.seeds += 1;
            tried.decisions += run.decisions.len() as u64;
            if run.end.is_failure() {
                let line = format!("seed {seed}: the program {}", run.end);
                if bar.is_hidden() {
                    eprintln!("{line}")
                } else {
                    bar.println(line)
                }
                let decisions = run.decisions.iter().map(|decision| decision.fault.id).collect();
                tried.failures.push(FailingSeed { seed, end: run.end, decisions });
            }
            bar.set_message(format!("{} fail", tried.failures.len()));
            bar.inc(1);
        }
        Ok::<(), String>(())
    })?;
    bar.finish_and_clear();
    Ok(tried)
}

fn bar(seeds: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(seeds);
    if let Ok(style) = ProgressStyle::with_template("seed {pos} of {len} {wide_bar} {msg}, {eta} left") {
        bar.set_style(style);
    }
    bar
}
