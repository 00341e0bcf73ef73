//! `uringlet bench ublk`: block devices whose server is a program.

mod plan;
mod report;
mod servers;
mod settings;

use std::path::Path;

use super::host::{Host, Load};
use super::progress::clock;
use super::stop::Stop;
use super::tools::Tools;
use super::{End, json, tell, write};
use servers::Servers;
pub(super) use settings::Args;

pub(super) fn run(args: &Args) -> Result<End, String> {
    let tools = Tools::find()?;
    let stop = Stop::on_signals()?;
    let host = Host::look(Path::new("."));
    let mut notes = Vec::new();
    let servers = if args.has(settings::Part::Paths) { Servers::start(&tools, &stop, &mut notes)? } else { Servers::none() };
    let mut plan = plan::plan(args, &tools, &servers);
    plan.notes.append(&mut notes);
    let rounds = args.rounds();
    let length = clock(plan.jobs.expected() * rounds);
    tell(&format!("{host}\n{} numbers, rounds: {rounds}, about {length}\n", plan.jobs.0.len()));
    let load = Load::begin();
    let is_whole = plan.jobs.rounds(rounds, &stop, || Ok(()))?;
    plan.notes.extend(load.note());
    drop(servers);
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
