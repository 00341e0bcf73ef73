//! `uringlet bench echo`: an echo server on the kernel's ring, on the engine and on epoll.

mod plan;
mod report;
mod settings;

use std::path::Path;

use super::host::{Host, Load};
use super::progress::clock;
use super::stop::Stop;
use super::tools::Tools;
use super::{End, json, tell, write};
pub(super) use settings::Args;

pub(super) fn run(args: &Args) -> Result<End, String> {
    let tools = Tools::find()?;
    let stop = Stop::on_signals()?;
    let host = Host::look(Path::new("."));
    let mut plan = plan::plan(args, &tools);
    let rounds = args.rounds();
    let length = clock(plan.jobs.expected() * rounds);
    tell(&format!("{host}\n{} numbers, rounds: {rounds}, about {length}\n", plan.jobs.0.len()));
    let load = Load::begin();
    let is_whole = plan.jobs.rounds(rounds, &stop, || Ok(()))?;
    plan.notes.extend(load.note());
    if !is_whole {
        plan.notes.push("stopped before its end: some numbers are of fewer rounds, some are missing".to_owned());
    }
    let goals = plan.goals();
    tell(&plan.text(&goals));
    if let Some(path) = &args.json {
        write(path, &json::document(&host, rounds, &plan.notes, &plan.jobs, &goals))?;
    }
    if let Some(path) = &args.svg {
        plan.plot().write(path)?;
    }
    Ok(if is_whole { End::Whole } else { End::Stopped })
}
