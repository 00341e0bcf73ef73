//! `uringlet bench workers`: the engine's worker pool beside the same pool under a single lock.

mod plan;
mod report;

use std::path::{Path, PathBuf};

use super::host::HostInfo;
use super::json;
use super::outcome::BenchOutcome;
use super::output::{print, write_file};
use super::stop::StopFlag;

/// The worker pool: inserting and consuming, with one lock per class and with one lock for all
#[derive(Debug, clap::Args)]
pub(super) struct BenchWorkersArgs {
    /// Number of rounds; medians are shown
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// Time that a work item keeps a worker busy
    #[arg(long, value_name = "NS", default_value_t = 200, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    work_ns: u32,

    /// Write all numbers to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

const POOL_PATHS: [&str; 2] = ["uringlet-bench-pool", "../lib/uringlet/uringlet-bench-pool"];

pub(super) fn run(args: &BenchWorkersArgs) -> Result<BenchOutcome, String> {
    let pool = find()?;
    let stop = StopFlag::on_signals()?;
    let host = HostInfo::detect(Path::new("."));
    let mut jobs = plan::plan(&pool, host.cpus, args.work_ns);
    print(&format!("{host}\n"));
    let outcome = jobs.run_rounds(args.rounds, &stop, || Ok(()))?;
    let goals = report::goals(&jobs);
    print(&report::text(&jobs, &goals, args.work_ns));
    if let Some(path) = &args.json {
        let notes = [format!("work items of {} ns; two submitters; workers per class", args.work_ns)];
        write_file(path, &json::document(&host, args.rounds, &notes, &jobs, &goals))?;
    }
    Ok(outcome)
}

/// The path of the benchmark program.
fn find() -> Result<PathBuf, String> {
    let uringlet = std::env::current_exe().map_err(|error| format!("cannot determine where uringlet is installed: {error}"))?;
    let directory = uringlet.parent().unwrap_or(Path::new("/"));
    POOL_PATHS.iter().map(|path| directory.join(path)).find(|path| path.is_file()).ok_or_else(|| {
        format!(
            "uringlet-bench-pool is neither in {0} nor in {0}/../lib/uringlet; build it with `cargo build --release -p uringlet-bench`",
            directory.display()
        )
    })
}
