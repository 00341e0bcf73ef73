//! Benchmarks whose rows are measured in the same three ways: by plain system calls, on the
//! kernel's ring, and under `uringlet run`.
//!
//! - suites: the rows of each benchmark and their goals (data)
//! - row: one row, and the commands that measure it
//! - report: tables, goals, bars

mod report;
mod row;
mod suites;

use std::path::PathBuf;

use super::host::{BackgroundLoad, HostInfo};
use super::job::Jobs;
use super::json;
use super::outcome::BenchOutcome;
use super::output::{print, remove_if_there, write_file};
use super::stop::StopFlag;
use super::tools::BenchTools;
use super::value_parsers::seconds;
pub(super) use suites::BenchSuite;

/// The options of all of these benchmarks.
#[derive(Debug, clap::Args)]
pub(super) struct CompareArgs {
    /// Number of rounds; medians are shown
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// Time of each measurement
    #[arg(long, value_name = "SECONDS", default_value_t = 0.3, value_parser = seconds)]
    seconds: f64,

    /// Directory for files; its filesystem influences the results
    #[arg(long, value_name = "DIR", default_value = ".")]
    directory: PathBuf,

    /// Write all numbers to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Plot the medians, relative to the kernel's ring, to this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

pub(super) fn run(suite: BenchSuite, args: &CompareArgs) -> Result<BenchOutcome, String> {
    if !args.directory.is_dir() {
        return Err(format!("--directory {}: there is no such directory", args.directory.display()));
    }
    let tools = BenchTools::find()?;
    let stop = StopFlag::on_signals()?;
    let host = HostInfo::detect(&args.directory);
    let file = args.directory.join(format!("uringlet-bench-{}", std::process::id()));
    let rows = suite.rows();
    let place = row::RowPlace { seconds: args.seconds, directory: &args.directory, file: &file };
    let mut jobs = Jobs(rows.iter().flat_map(|row| row.jobs(&tools, &place)).collect());
    print(&format!("{host}\n"));
    let background = BackgroundLoad::begin();
    let measured = jobs.run_rounds(args.rounds, &stop, || remove_if_there(&file));
    let _ = std::fs::remove_file(&file);
    let outcome = measured?;
    let goals = report::goals(&rows, &jobs);
    let no_kernel = tools.no_kernel.as_ref().map(|why| format!("the kernel's ring: not measured ({why})"));
    let notes: Vec<String> = outcome.note().into_iter().chain(no_kernel).chain(background.warning()).collect();
    print(&report::text(&rows, &jobs, &goals, &notes));
    if let Some(path) = &args.json {
        write_file(path, &json::document(&host, args.rounds, &notes, &jobs, &goals))?;
    }
    if let Some(path) = &args.svg {
        report::bars(&rows, &jobs).write(path)?;
    }
    Ok(outcome)
}
