//! `uringlet bench writes`: buffered writes by every engine, and what a slow file costs the others.

mod args;
mod engine;
mod plan;
mod report;
mod slow_fs;
mod sysctl;
mod workspace;

use super::host::{BackgroundLoad, Host};
use super::progress::clock;
use super::stop::StopFlag;
use super::tools::BenchTools;
use super::{BenchOutcome, json, print, write_file};
pub(super) use args::BenchWritesArgs;
use workspace::Workspace;

pub(super) fn run(args: &BenchWritesArgs) -> Result<BenchOutcome, String> {
    if sysctl::recover()? {
        eprintln!("put the dirty limits back, which a killed run left low");
    }
    let tools = BenchTools::find()?;
    let stop = StopFlag::on_signals()?;
    let mut workspace = Workspace::new(&args.directory)?;
    let host = Host::detect(workspace.path());
    let mut plan = plan::plan(args, &tools, &mut workspace, &stop);
    let rounds = args.rounds();
    let length = clock(plan.jobs.expected_time() * rounds);
    print(&format!("{host}\n{} numbers, rounds: {rounds}, about {length}\n", plan.jobs.0.len()));
    let background = BackgroundLoad::begin();
    let is_whole = plan.jobs.run_rounds(rounds, &stop, || Ok(()))?;
    drop(workspace);
    plan.notes.extend(background.warning());
    if !is_whole {
        plan.notes.push("stopped before its end: some numbers are of fewer rounds, some are missing".to_owned());
    }
    let goals = plan.goals();
    print(&report::text(&plan, &goals));
    if let Some(path) = &args.json {
        write_file(path, &json::document(&host, rounds, &plan.notes, &plan.jobs, &goals))?;
    }
    if let Some(path) = &args.svg {
        plan.plot().write(path)?;
    }
    Ok(if is_whole { BenchOutcome::Whole } else { BenchOutcome::Stopped })
}
