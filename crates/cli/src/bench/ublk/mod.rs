//! `uringlet bench ublk`: block devices whose server is a program.

mod args;
mod plan;
mod report;
mod servers;

use std::path::Path;

use indicatif::HumanDuration;

use super::host::{BackgroundLoad, HostInfo};
use super::json;
use super::outcome::BenchOutcome;
use super::output::{print, write_file};
use super::stop::StopFlag;
use super::tools::BenchTools;
pub(super) use args::BenchUblkArgs;
use servers::NullServers;

pub(super) fn run(args: &BenchUblkArgs) -> Result<BenchOutcome, String> {
    let tools = BenchTools::find()?;
    let stop = StopFlag::on_signals()?;
    let host = HostInfo::detect(Path::new("."));
    let mut notes = Vec::new();
    let servers = if args.has(args::UblkPart::Paths) { NullServers::start(&tools, &stop, &mut notes)? } else { NullServers::none() };
    let mut plan = plan::plan(args, &tools, &servers);
    plan.notes.append(&mut notes);
    let rounds = args.rounds();
    let length = HumanDuration(plan.jobs.expected_time() * rounds);
    print(&format!("{host}\n{} numbers, rounds: {rounds}, about {length}\n", plan.jobs.0.len()));
    let background = BackgroundLoad::begin();
    let outcome = plan.jobs.run_rounds(rounds, &stop, || Ok(()))?;
    plan.notes.extend(background.warning());
    drop(servers);
    plan.notes.extend(outcome.note());
    let goals = plan.goals();
    print(&plan.text(&goals));
    if let Some(path) = &args.json {
        write_file(path, &json::document(&host, rounds, &plan.notes, &plan.jobs, &goals))?;
    }
    if let Some(path) = &args.svg {
        plan.plot().write(path)?;
    }
    Ok(outcome)
}
