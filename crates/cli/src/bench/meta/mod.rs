//! `uringlet bench meta`: opening, looking up, making and removing files.

mod args;
mod plan;
mod report;

use super::host::{BackgroundLoad, HostInfo};
use super::json;
use super::outcome::BenchOutcome;
use super::output::{print, write_file};
use super::stop::StopFlag;
use super::tools::BenchTools;
pub(super) use args::BenchMetaArgs;

pub(super) fn run(args: &BenchMetaArgs) -> Result<BenchOutcome, String> {
    let tools = BenchTools::find()?;
    let stop = StopFlag::on_signals()?;
    let host = HostInfo::detect(&args.directory);
    let mut jobs = plan::plan(&tools, args);
    print(&format!("{host}\n"));
    let background = BackgroundLoad::begin();
    let outcome = jobs.run_rounds(args.rounds, &stop, || Ok(()))?;
    let goals = report::goals(&jobs);
    let no_kernel = tools.no_kernel.as_ref().map(|why| format!("the kernel's ring: not measured ({why})"));
    let notes: Vec<String> = no_kernel.into_iter().chain(background.warning()).collect();
    print(&report::text(&jobs, &goals, &notes));
    if let Some(path) = &args.json {
        write_file(path, &json::document(&host, args.rounds, &notes, &jobs, &goals))?;
    }
    Ok(outcome)
}
