//! `uringlet stat`: the counters of an engine in another process.
//!
//! The engine always counts, in its own memory. This command reads that memory with
//! process_vm_readv(2), without stopping the process.

mod block;
mod bytes;
mod elf;
mod error;
mod library;
mod observed;
mod openmetrics;
mod process;
mod sampled;
mod show;
mod tree;

use std::io::{self, Write};
use std::time::{Duration, Instant};

use crate::status::Status;
use block::Snapshot;
pub(crate) use block::{EngineCounters, StatsBlock};
pub(crate) use error::StatError;
pub(crate) use library::library_version;
use observed::{Observed, observe, observe_tree};
pub(crate) use process::RemoteProcess;
use sampled::Sampled;
use show::EventList;
use uringlet_sys::stats::COUNTER_DOCS;

/// Show the counters of the engine in a running process
///
/// For a process that runs under `uringlet run`, with the drop-in liburing.so.2, or with the engine
/// built in. The process is not stopped. It takes the right to trace the process: root, or its user
/// where Yama's ptrace_scope is 0. Counters are never reset; a forked child continues its parent's.
#[derive(Debug, clap::Args)]
#[command(after_long_help = counter_help())]
pub(crate) struct StatArgs {
    /// Print JSON; with --watch one object per line
    #[arg(long)]
    json: bool,

    /// Print rates per second until the process ends
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "1", value_parser = seconds)]
    watch: Option<Duration>,

    /// Also count, by a trace of SECONDS, the requests that end meanwhile: by opcode, by road and
    /// by file how many, errors, bytes and latencies
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "1", value_parser = seconds, conflicts_with = "watch")]
    requests: Option<Duration>,

    /// Of the process and all that descend from it
    #[arg(long, conflicts_with = "watch")]
    tree: bool,

    /// Print OpenMetrics text, as Prometheus reads it
    #[arg(long, conflicts_with_all = ["json", "watch", "events"])]
    openmetrics: bool,

    /// Also show the last events (at most 256 are kept)
    #[arg(long)]
    events: bool,

    /// The process
    #[arg(value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pid: i32,
}

impl StatArgs {
    fn event_list(&self) -> EventList {
        if self.events { EventList::Include } else { EventList::Omit }
    }
}

/// The help text that explains each counter.
fn counter_help() -> String {
    let rows = COUNTER_DOCS.iter().map(|(name, about)| format!("  {name:<24} {}\n", about.replace('`', "")));
    format!("Counters:\n{}", rows.collect::<String>())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.01..=86400.0).contains(&seconds) { Ok(Duration::from_secs_f64(seconds)) } else { Err("from 0.01 to 86400".to_owned()) }
}

pub(crate) fn stat(args: &StatArgs) -> Status {
    let result = match args.watch {
        None => once(args),
        Some(interval) => watch(args, interval),
    };
    match result {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("uringlet stat: {}", error.message(args.pid));
            1
        }
    }
}

fn once(args: &StatArgs) -> Result<(), StatError> {
    // First: afterwards the processes may have ended.
    let mut observed = if args.tree { observe_tree(args.pid)? } else { vec![observe(args.pid)?] };
    let pids: Vec<i32> = observed.iter().map(|(process, _)| process.pid).collect();
    let sampled = args.requests.map(|time| Sampled::of(&pids, time)).transpose()?;
    if sampled.is_some() {
        for one in &mut observed {
            if let Ok(later) = observe(one.0.pid) {
                *one = later;
            }
        }
    }
    print(&text(args, &observed, sampled.as_ref()))
}

fn text(args: &StatArgs, observed: &[Observed], sampled: Option<&Sampled>) -> String {
    if args.openmetrics {
        return openmetrics::text(observed, sampled);
    }
    if args.json {
        let first = || observed.first().map(|(process, seen)| show::object(process, seen, args.event_list()));
        let mut document = if args.tree { show::json(observed, args.event_list()) } else { first().unwrap_or_default() };
        if let Some(sampled) = sampled {
            document["requests"] = sampled.json();
        }
        return format!("{document:#}\n");
    }
    let first = || observed.first().map(|(process, seen)| show::table(process, seen, args.event_list()));
    let counters = if args.tree { show::tables(observed, args.event_list()) } else { first().unwrap_or_default() };
    counters + &sampled.map(Sampled::table).unwrap_or_default()
}

/// Prints rates until the process ends. Ctrl-C needs no handling: there is nothing to clean up.
fn watch(args: &StatArgs, interval: Duration) -> Result<(), StatError> {
    let process = RemoteProcess::find(args.pid)?;
    let mut engine = StatsBlock::find(&process)?;
    let mut before = (Instant::now(), engine.snapshot(&process)?);
    loop {
        std::thread::sleep(interval.saturating_sub(before.0.elapsed()));
        let now = match reread(&mut engine, &process) {
            Err(StatError::NoProcess) => {
                eprintln!("uringlet stat: process {} has ended", args.pid);
                return Ok(());
            }
            other => (Instant::now(), other?),
        };
        let rates = show::Rates::between(&before.1, &now.1, now.0 - before.0);
        print(&if args.json { rates.json(args.event_list()) } else { rates.line(args.event_list()) })?;
        before = now;
    }
}

/// Reads the counters again. The process may have executed another program meanwhile, whose engine
/// appears once its libraries are loaded.
fn reread(engine: &mut StatsBlock, process: &RemoteProcess) -> Result<Snapshot, StatError> {
    const TRIES: u32 = 40;
    const BETWEEN: Duration = Duration::from_millis(50);
    for _ in 0..TRIES {
        match engine.snapshot(process) {
            Err(StatError::Corrupt(_)) => {}
            other => return other,
        }
        match StatsBlock::find(process) {
            Ok(found) => *engine = found,
            Err(StatError::NoEngine | StatError::Corrupt(_)) => std::thread::sleep(BETWEEN),
            Err(error) => return Err(error),
        }
    }
    Err(StatError::NoEngine)
}

fn print(text: &str) -> Result<(), StatError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| StatError::Os(format!("cannot write to standard output: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_a_positive_number_of_seconds() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for bad in ["", "fast", "0", "-1", "NaN", "inf"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_help_explains_every_counter() {
        let text = counter_help();
        assert_eq!(text.lines().count(), 1 + COUNTER_DOCS.len());
        assert!(text.contains("\n  slow_inline_writes  "), "{text}");
    }
}
