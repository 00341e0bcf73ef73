//! `uringlet bench ring`: the cost of a call, a NOP and a small write.

mod plan;
mod report;

use std::path::PathBuf;

use super::host::{BackgroundLoad, HostInfo};
use super::json;
use super::outcome::BenchOutcome;
use super::output::{print, remove_if_there, write_file};
use super::stop::StopFlag;
use super::tools::BenchTools;
use plan::FioUse;

/// Cost of a call through each call path, NOP rates and small buffered writes, beside the kernel's
/// ring
#[derive(Debug, clap::Args)]
pub(super) struct BenchRingArgs {
    /// Number of rounds; medians are shown
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// Directory for the test file; its filesystem influences the results
    #[arg(long, value_name = "DIR", default_value = ".")]
    directory: PathBuf,

    /// Leave fio out
    #[arg(long)]
    no_fio: bool,

    /// Write all numbers to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Plot the rates to this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

pub(super) fn run(args: &BenchRingArgs) -> Result<BenchOutcome, String> {
    let tools = BenchTools::find()?;
    let stop = StopFlag::on_signals()?;
    let host = HostInfo::detect(&args.directory);
    let file = args.directory.join(format!("uringlet-bench-{}", std::process::id()));
    let mut plan = plan::plan(&tools, &file, if args.no_fio { FioUse::Off } else { FioUse::IfInstalled });
    print(&format!("{host}\n"));
    let background = BackgroundLoad::begin();
    // fio creates a file of its own size.
    let measured = plan.jobs.run_rounds(args.rounds, &stop, || remove_if_there(&file));
    let _ = std::fs::remove_file(&file);
    plan.notes.extend(background.warning());
    let outcome = measured?;
    let goals = report::goals(&plan.jobs);
    print(&report::text(&plan, &goals));
    if let Some(path) = &args.json {
        write_file(path, &json::document(&host, args.rounds, &plan.notes, &plan.jobs, &goals))?;
    }
    if let Some(path) = &args.svg {
        report::plot(&plan.jobs).write(path)?;
    }
    Ok(outcome)
}
