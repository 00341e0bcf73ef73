//! `uringlet bench start`: what it costs a process to be attached, from fork(2) to its end.

mod plan;
mod report;

use std::path::{Path, PathBuf};

use super::host::{BackgroundLoad, HostInfo};
use super::json;
use super::outcome::BenchOutcome;
use super::output::{print, write_file};
use super::stop::StopFlag;
use super::tools::BenchTools;

/// Starting programs that use no ring: children of an attached process, and `uringlet run`
#[derive(Debug, clap::Args)]
pub(super) struct BenchStartArgs {
    /// Number of rounds; medians are shown
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// A program that is started as well, as `PROGRAM --version`; may be repeated
    #[arg(long, value_name = "PROGRAM")]
    program: Vec<String>,

    /// Write all numbers to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(super) fn run(args: &BenchStartArgs) -> Result<BenchOutcome, String> {
    let tools = BenchTools::find()?;
    let stop = StopFlag::on_signals()?;
    let host = HostInfo::detect(Path::new("."));
    let mut jobs = plan::plan(&tools, &args.program);
    print(&format!("{host}\n"));
    let background = BackgroundLoad::begin();
    let outcome = jobs.run_rounds(args.rounds, &stop, || Ok(()))?;
    let goals = report::goals(&jobs);
    let notes: Vec<String> = background.warning().into_iter().collect();
    print(&report::text(&jobs, &goals, &notes));
    if let Some(path) = &args.json {
        let what = "fork, execve and the whole life of the program, \u{b5}s".to_owned();
        let notes: Vec<String> = std::iter::once(what).chain(notes).collect();
        write_file(path, &json::document(&host, args.rounds, &notes, &jobs, &goals))?;
    }
    Ok(outcome)
}
