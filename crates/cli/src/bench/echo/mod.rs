//! `uringlet bench echo`: an echo server on the kernel's ring, on the engine and on epoll.

mod args;
mod plan;
mod report;

use std::path::Path;

use indicatif::HumanDuration;

use super::host::{BackgroundLoad, HostInfo};
use super::json;
use super::outcome::BenchOutcome;
use super::output::{print, write_file};
use super::stop::StopFlag;
use super::tools::BenchTools;
pub(super) use args::BenchEchoArgs;

pub(super) fn run(args: &BenchEchoArgs) -> Result<BenchOutcome, String> {
    let tools = BenchTools::find()?;
    let stop = StopFlag::on_signals()?;
    let host = HostInfo::detect(Path::new("."));
    let mut plan = plan::plan(args, &tools);
    let rounds = args.rounds();
    let length = HumanDuration(plan.jobs.expected_time() * rounds);
    print(&format!("{host}\n{} numbers, rounds: {rounds}, about {length}\n", plan.jobs.0.len()));
    let background = BackgroundLoad::begin();
    let outcome = plan.jobs.run_rounds(rounds, &stop, || Ok(()))?;
    plan.notes.extend(background.warning());
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
