//! `uringlet bench workers`: the engine's worker pool by itself, beside the same pool under a single lock.

mod report;

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::host::Host;
use super::job::{BenchJob, Jobs, TableCell};
use super::launch::Launch;
use super::stop::StopFlag;
use super::{BenchOutcome, json, print, write_file};

/// The worker pool: inserting and consuming, with a lock for each class and with one lock for all
#[derive(Debug, clap::Args)]
pub(super) struct BenchWorkersArgs {
    /// How often everything is measured; medians are shown
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// How long a piece of work keeps a worker busy
    #[arg(long, value_name = "NS", default_value_t = 200, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    work_ns: u32,

    /// Write all numbers to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

const ONE: &str = "one lock";
const SPLIT: &str = "split locks";
const CLASSES: [&str; 3] = ["bound", "unbound", "both"];
const PLACES: [&str; 2] = ["uringlet-bench-pool", "../lib/uringlet/uringlet-bench-pool"];
/// About what a process takes.
const EXPECTED: Duration = Duration::from_millis(900);

pub(super) fn run(args: &BenchWorkersArgs) -> Result<BenchOutcome, String> {
    let pool = find()?;
    let stop = StopFlag::on_signals()?;
    let host = Host::detect(Path::new("."));
    let mut jobs = plan(&pool, host.cpus, args.work_ns);
    print(&format!("{host}\n"));
    let end = if jobs.run_rounds(args.rounds, &stop, || Ok(()))? { BenchOutcome::Whole } else { BenchOutcome::Stopped };
    let goals = report::goals(&jobs);
    print(&report::text(&jobs, &goals, args.work_ns));
    if let Some(path) = &args.json {
        let notes = [format!("work of {} ns a piece; two threads insert; workers are those of each class", args.work_ns)];
        write_file(path, &json::document(&host, args.rounds, &notes, &jobs, &goals))?;
    }
    Ok(end)
}

/// The program that measures.
fn find() -> Result<PathBuf, String> {
    let uringlet = std::env::current_exe().map_err(|error| format!("cannot find out where uringlet is installed: {error}"))?;
    let directory = uringlet.parent().unwrap_or(Path::new("/"));
    PLACES.iter().map(|place| directory.join(place)).find(|path| path.is_file()).ok_or_else(|| {
        format!(
            "uringlet-bench-pool is neither in {0} nor in {0}/../lib/uringlet; build it with `cargo build --release -p uringlet-bench`",
            directory.display()
        )
    })
}

fn plan(pool: &Path, cpus: usize, work_ns: u32) -> Jobs {
    let mut jobs = Jobs::default();
    for classes in CLASSES {
        for workers in worker_counts(cpus) {
            for (column, locks) in [(ONE, "one"), (SPLIT, "split")] {
                let row = format!("{workers} worker{}", if workers == 1 { "" } else { "s" });
                let numbers = [workers.to_string(), work_ns.to_string()];
                let options = ["--locks", locks, "--classes", classes, "--workers", &numbers[0], "--work-ns", &numbers[1]];
                let launch = Launch::new(std::iter::once(pool.as_os_str()).chain(options.into_iter().map(AsRef::as_ref)));
                jobs.push(BenchJob::program(TableCell::new(classes, row, column), EXPECTED, launch, json::sample));
            }
        }
    }
    jobs
}

/// From 1 to twice the CPUs, doubling, and as many as there are CPUs.
fn worker_counts(cpus: usize) -> Vec<usize> {
    let most = (2 * cpus).clamp(1, 64);
    let mut counts: Vec<usize> =
        std::iter::successors(Some(1), |n| Some(2 * n)).take_while(|&n| n < most).chain([cpus.min(most), most]).collect();
    counts.sort_unstable();
    counts.dedup();
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_one_to_twice_the_cpus() {
        assert_eq!(worker_counts(1), [1, 2]);
        assert_eq!(worker_counts(2), [1, 2, 4]);
        assert_eq!(worker_counts(6), [1, 2, 4, 6, 8, 12]);
        assert_eq!(worker_counts(200), [1, 2, 4, 8, 16, 32, 64]);
    }

    #[test]
    fn both_pools_are_asked_the_same() {
        let jobs = plan(Path::new("/p"), 2, 200);
        assert_eq!(jobs.0.len(), 3 * 3 * 2);
        assert_eq!(jobs.rows("both"), ["1 worker", "2 workers", "4 workers"]);
        assert!(jobs.find_job("unbound", "4 workers", SPLIT).is_some());
    }
}
