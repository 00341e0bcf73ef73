//! What is printed of the runs.

use uringlet_sys::fault_plan::{CALLS, ranges_to_text};

use super::args::ChaosArgs;
use super::decision::{Decision, ranges};
use super::run::Run;
use super::seeds::{FailingSeed, TriedSeeds};
use super::shrink::Shrunk;
use crate::shell::quoted;

/// Lines of a program's output.
const LINES: usize = 8;

/// How many seeds were tried, and which have failed.
pub(super) fn summary(args: &ChaosArgs, tried: &TriedSeeds) {
    let all = args.seeds().last - args.seeds().first + 1;
    let TriedSeeds { seeds, decisions, failures } = tried;
    let of_all = if *seeds == all { String::new() } else { format!(" of {all}") };
    println!("{seeds}{of_all} seeds, {decisions} decisions: {} fail", failures.len());
    if *decisions == 0 && *seeds > 0 {
        println!("nothing was done to any request: does the program use a ring?");
    }
    let left = failures.len().saturating_sub(args.shrunk());
    if left > 0 {
        println!("the first {} are looked at (--shrink); {left} are not", args.shrunk());
    }
}

/// One failure, and what is left of it.
pub(super) fn failure(args: &ChaosArgs, failure: &FailingSeed, shrunk: &Shrunk) {
    let FailingSeed { seed, end, decisions } = failure;
    let options = |only: &[String]| {
        let words = args.run_options(*seed).into_iter().chain(only.iter().cloned()).chain(["--".to_owned()]);
        let command = args.command().iter().map(|word| word.to_string_lossy().into_owned());
        words.chain(command).map(|word| quoted(&word)).collect::<Vec<_>>().join(" ")
    };
    println!("\nseed {seed}: the program {end}");
    match shrunk {
        Shrunk::Stopped => println!("  repeat: uringlet run {}", options(&[])),
        Shrunk::Vanished => {
            println!("  It did not fail again with the same {} decisions: its outcome depends on time, too.", decisions.len());
            println!("  repeat: uringlet run {}", options(&[]));
        }
        Shrunk::To(ids, run) => {
            let (least, all) = (ids.len(), decisions.len());
            println!("  {least} of {all} decisions {} enough:", if least == 1 { "is" } else { "are" });
            for decision in &run.decisions {
                println!("  {:<8} {}\n           {}", decision.fault.id.to_string(), decision.action(), line_of(run, decision));
            }
            let only = ["--only".to_owned(), ranges_to_text(&ranges(ids))];
            println!("  repeat: uringlet run {}", options(&only));
            println!("  watch:  uringlet trace -- uringlet run {}", options(&only));
            output(run);
        }
    }
}

/// The line of a trace that a decision was about.
fn line_of(run: &Run, decision: &Decision) -> String {
    let key = (decision.pid, decision.fault.id.ring, decision.request);
    let line = run.lines.iter().find(|(of, _)| *of == key && decision.fault.id.ring != CALLS);
    line.map_or_else(|| format!("[pid {}] {}", decision.pid, decision.subject()), |(_, line)| line.clone())
}

/// The last lines of the program.
pub(super) fn output(run: &Run) {
    let lines: Vec<&str> = run.output.lines().collect();
    if !lines.is_empty() {
        println!("  its last lines:");
        lines[lines.len().saturating_sub(LINES)..].iter().for_each(|line| println!("    {line}"));
    }
}
