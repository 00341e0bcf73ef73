//! `uringlet bench goals`: the other benchmarks, and which goals this machine misses.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::outcome::BenchOutcome;
use super::output::print;
use super::stop::StopFlag;
use super::summary::number;
use super::table::TextTable;

/// The goals that are missed on this machine
#[derive(Debug, clap::Args)]
pub(super) struct BenchGoalsArgs {
    /// Only these benchmarks
    #[arg(value_name = "BENCHMARK", value_parser = clap::builder::PossibleValuesParser::new(ALL))]
    benchmarks: Vec<String>,

    /// Number of rounds of each
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// Directory for files; its filesystem influences the results
    #[arg(long, value_name = "DIR", default_value = ".")]
    directory: PathBuf,

    /// The goals that are met, too
    #[arg(long)]
    all: bool,

    /// Keep the numbers of each benchmark in this directory, as BENCHMARK.json
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

/// From the fastest to the slowest.
const ALL: [&str; 13] =
    ["wakeups", "cancel", "timers", "rings", "meta", "reads", "ring", "start", "trace", "echo", "workers", "writes", "ublk"];

/// Between looks at a running benchmark.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// One goal of a document.
#[derive(Debug)]
struct FoundGoal {
    what: String,
    is_met: bool,
    bound: String,
    measured: String,
}

pub(super) fn run(args: &BenchGoalsArgs) -> Result<BenchOutcome, String> {
    let stop = StopFlag::on_signals()?;
    let directory = args.directory.canonicalize().map_err(|error| format!("--directory {}: {error}", args.directory.display()))?;
    let kept = match &args.keep {
        Some(kept) => kept.canonicalize().map_err(|error| format!("--keep {}: {error}", kept.display()))?,
        None => directory.clone(),
    };
    let wanted = |name: &&str| args.benchmarks.is_empty() || args.benchmarks.iter().any(|wanted| wanted == name);
    let (mut goals, mut failures, mut outcome) = (Vec::new(), String::new(), BenchOutcome::Complete);
    for name in ALL.into_iter().filter(wanted) {
        eprintln!("bench {name}");
        let json = match &args.keep {
            Some(_) => kept.join(format!("{name}.json")),
            None => kept.join(format!("uringlet-bench-{}.json", std::process::id())),
        };
        let measured = measure(name, args.rounds, &directory, &json, &stop);
        if args.keep.is_none() {
            let _ = std::fs::remove_file(&json);
        }
        if stop.is_requested() {
            outcome = BenchOutcome::Interrupted;
            break;
        }
        match measured {
            Ok(found) => goals.extend(found),
            Err(why) => failures += &format!("bench {name}: {why}\n"),
        }
    }
    let note = outcome.note().map(|note| note + "\n").unwrap_or_default();
    print(&format!("{}{note}{failures}", report(&goals, args.all)));
    if failures.is_empty() { Ok(outcome) } else { Err("not everything could be measured".to_owned()) }
}

/// Runs one benchmark, whose progress is shown.
fn measure(name: &str, rounds: u32, directory: &Path, json: &Path, stop: &StopFlag) -> Result<Vec<FoundGoal>, String> {
    let program = std::env::current_exe().map_err(|error| format!("cannot determine where uringlet is installed: {error}"))?;
    let mut command = Command::new(program);
    command.args(["bench", name, "--rounds", &rounds.to_string(), "--json"]).arg(json).current_dir(directory);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().map_err(|error| error.to_string())?;
    let status = wait(&mut child, stop).map_err(|error| error.to_string())?;
    if !status.success() {
        return Err(format!("{status}: its message is above"));
    }
    let text = std::fs::read_to_string(json).map_err(|error| format!("its numbers: {error}"))?;
    let document: Value = serde_json::from_str(&text).map_err(|error| format!("its numbers: {error}"))?;
    Ok(found(name, &document))
}

/// Waits for a benchmark. If this one is to stop, so is that one, which removes its files.
fn wait(child: &mut Child, stop: &StopFlag) -> std::io::Result<ExitStatus> {
    let mut is_signalled = false;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if stop.is_requested() && !is_signalled {
            // An error means that it has ended.
            let _ = kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT);
            is_signalled = true;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn found(name: &str, document: &Value) -> Vec<FoundGoal> {
    let goal = |goal: &Value| {
        let at = goal["at"].as_str().map_or_else(String::new, |at| format!(" ({at})"));
        Some(FoundGoal {
            what: format!("{name}: {}", goal["goal"].as_str()?),
            is_met: goal["met"].as_bool()?,
            bound: format!("{} {}", goal["bound"].as_str()?, number(goal["limit"].as_f64()?)),
            measured: format!("{}{at}", number(goal["measured"].as_f64()?)),
        })
    };
    document["goals"].as_array().map(Vec::as_slice).unwrap_or_default().iter().filter_map(goal).collect()
}

fn report(goals: &[FoundGoal], with_met: bool) -> String {
    let missed = goals.iter().filter(|goal| !goal.is_met).count();
    let title = format!("{missed} of {} goals are missed", goals.len());
    if missed == 0 && !with_met {
        return format!("\n{title}\n");
    }
    let mut table = TextTable::new(title, ["", "goal", "measured", ""]);
    for goal in goals.iter().filter(|goal| with_met || !goal.is_met) {
        let word = if goal.is_met { "met" } else { "missed" };
        table.row([goal.what.as_str(), &goal.bound, &goal.measured, word]);
    }
    table.text()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn missed_goals_are_told() {
        let goal =
            |name: &str, met: bool| json!({"goal": name, "bound": "at most", "limit": 1.0, "measured": 1.5, "at": "depth 1", "met": met});
        let goals = found("reads", &json!({ "goals": [goal("fast", false), goal("good", true)] }));
        let text = report(&goals, false);
        assert!(text.contains("1 of 2 goals are missed") && text.contains("reads: fast") && !text.contains("good"), "{text}");
        assert!(text.contains("at most 1.00") && text.contains("1.50 (depth 1)"), "{text}");
        assert!(report(&goals, true).contains("reads: good"));
        assert_eq!(report(&[], false), "\n0 of 0 goals are missed\n");
    }
}
