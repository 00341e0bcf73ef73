//! `uringlet bench writes`: buffered writes by every engine, and what a slow file costs the others.

mod engine;
mod plan;
mod report;
mod settings;
mod slow;
mod sysctl;
mod workspace;

use super::host::{Host, Load};
use super::progress::clock;
use super::stop::Stop;
use super::tools::Tools;
use super::{End, json, tell, write};
pub(super) use settings::Args;
use workspace::Workspace;

pub(super) fn run(args: &Args) -> Result<End, String> {
    if sysctl::recover()? {
        eprintln!("put the dirty limits back, which a killed run left low");
    }
    let tools = Tools::find()?;
    let stop = Stop::on_signals()?;
    let mut workspace = Workspace::new(&args.directory)?;
    let host = Host::look(workspace.path());
    let mut plan = plan::plan(args, &tools, &mut workspace, &stop);
    let rounds = args.rounds();
    let length = clock(plan.jobs.expected() * rounds);
    tell(&format!("{host}\n{} numbers, rounds: {rounds}, about {length}\n", plan.jobs.0.len()));
    let load = Load::begin();
    let is_whole = plan.jobs.rounds(rounds, &stop, || Ok(()))?;
    drop(workspace);
    plan.notes.extend(load.note());
    if !is_whole {
        plan.notes.push("stopped before its end: some numbers are of fewer rounds, some are missing".to_owned());
    }
    let goals = plan.goals();
    tell(&report::text(&plan, &goals));
    if let Some(path) = &args.json {
        write(path, &json::document(&host, rounds, &plan.notes, &plan.jobs, &goals))?;
    }
    if let Some(path) = &args.svg {
        plan.plot().write(path)?;
    }
    Ok(if is_whole { End::Whole } else { End::Stopped })
}
