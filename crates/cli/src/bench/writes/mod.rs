//! `uringlet bench writes`: buffered writes with every engine, and the latency beside a slow file.

mod args;
mod engine;
mod plan;
mod report;
mod slow_fs;
mod sysctl;
mod workspace;

use indicatif::HumanDuration;

use super::host::{BackgroundLoad, HostInfo};
use super::json;
use super::outcome::BenchOutcome;
use super::output::{print, write_file};
use super::stop::StopFlag;
use super::tools::BenchTools;
pub(super) use args::BenchWritesArgs;
use workspace::Workspace;

pub(super) fn run(args: &BenchWritesArgs) -> Result<BenchOutcome, String> {
    if sysctl::recover()? {
        eprintln!("restored the dirty limits that a killed run left low");
    }
    let tools = BenchTools::find()?;
    let stop = StopFlag::on_signals()?;
    let mut workspace = Workspace::new(&args.directory)?;
    let host = HostInfo::detect(workspace.path());
    let mut plan = plan::plan(args, &tools, &mut workspace, &stop);
    let rounds = args.rounds();
    let length = HumanDuration(plan.jobs.expected_time() * rounds);
    print(&format!("{host}\n{} numbers, rounds: {rounds}, about {length}\n", plan.jobs.0.len()));
    let background = BackgroundLoad::begin();
    let outcome = plan.jobs.run_rounds(rounds, &stop, || Ok(()))?;
    drop(workspace);
    plan.notes.extend(background.warning());
    plan.notes.extend(outcome.note());
    let goals = plan.goals();
    print(&report::text(&plan, &goals));
    if let Some(path) = &args.json {
        write_file(path, &json::document(&host, rounds, &plan.notes, &plan.jobs, &goals))?;
    }
    if let Some(path) = &args.svg {
        plan.plot().write(path)?;
    }
    Ok(outcome)
}
