//! `uringlet stat`: the counters of an engine in another process.
//!
//! The engine counts in its own memory, whether anybody looks or not; this reads it there (process_vm_readv(2)). The process is not stopped and does not notice.

mod block;
mod elf;
mod process;
mod show;

use std::io::{self, Write};
use std::time::{Duration, Instant};

use crate::Status;
use block::{Snapshot, StatsBlock};
use process::RemoteProcess;
use uringlet_sys::stats::COUNTER_DOCS;

/// Show what the engine in a running process counts
///
/// For a process that runs under `uringlet run`, with the drop-in liburing.so.2, or with the engine built in. The process is not stopped. Whoever may trace the process may
/// look: root, or its user where Yama's ptrace_scope is 0. Counters are never reset; a forked child goes on from its parent's.
#[derive(Debug, clap::Args)]
#[command(after_long_help = counter_help())]
pub(crate) struct StatArgs {
    /// Print JSON; with --watch one object a line
    #[arg(long)]
    json: bool,

    /// Print what is counted in a second, until the process ends
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "1", value_parser = seconds)]
    watch: Option<Duration>,

    /// Also show the last events (at most 256 are kept)
    #[arg(long)]
    events: bool,

    /// The process
    #[arg(value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pid: i32,
}

/// Why nothing can be shown.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StatError {
    /// There is no such process, or it has ended.
    NoProcess,
    /// Another user's, or tracing is restricted.
    PermissionDenied,
    /// No object of the process has an engine.
    NoEngine,
    /// An engine whose block this version cannot read.
    LayoutMismatch { object: String, layout: u32 },
    /// The engine's memory holds what no engine writes.
    Corrupt(&'static str),
    /// Anything else.
    Os(String),
}

impl StatError {
    fn message(&self, pid: i32) -> String {
        match self {
            Self::NoProcess => format!("no process {pid}"),
            Self::PermissionDenied => format!(
                "not permitted to snapshot into process {pid}: it takes the right to trace it. Be root, or its user; and where the file /proc/sys/kernel/yama/ptrace_scope holds \
                 more than 0, root"
            ),
            Self::NoEngine => {
                format!(
                    "process {pid} has no uringlet engine in it: start the program by `uringlet run`, or with the drop-in liburing.so.2"
                )
            }
            Self::LayoutMismatch { object, layout } => format!(
                "the engine in process {pid} ({object}) is of another version: its counters have layout {layout}, this program knows {}. Use the `uringlet` that it came with",
                uringlet_sys::stats::LAYOUT_VERSION
            ),
            Self::Corrupt(what) => format!("the counters in process {pid} are overwritten: {what}"),
            Self::Os(text) => format!("process {pid}: {text}"),
        }
    }
}

/// What each counter counts.
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
    let process = RemoteProcess::find(args.pid)?;
    let engine = StatsBlock::find(&process)?;
    let snapshot = engine.snapshot(&process)?;
    let text = if args.json { show::json(&process, &snapshot, args.events) } else { show::table(&process, &snapshot, args.events) };
    print(&text)
}

/// Until the process ends; Ctrl-C ends this as any program: there is nothing to be put back.
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
        print(&if args.json { rates.json(args.events) } else { rates.line(args.events) })?;
        before = now;
    }
}

/// The process may have become another program meanwhile, by exec; its engine is there when its libraries are loaded.
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
    fn an_interval_is_a_number_of_seconds() {
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

    #[test]
    fn each_trouble_says_what_to_do_about_which_process() {
        let other = StatError::LayoutMismatch { object: "/x.so".into(), layout: 9 };
        for error in [
            StatError::NoProcess,
            StatError::PermissionDenied,
            StatError::NoEngine,
            other,
            StatError::Corrupt("size"),
            StatError::Os("x".into()),
        ] {
            assert!(error.message(4711).contains("4711"), "{error:?}");
        }
    }
}
