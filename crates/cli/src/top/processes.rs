//! The processes with an engine, and what their counters say.

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

use crate::stat::{EngineCounters, RemoteProcess, StatsBlock};

/// A process that had no engine is asked again after this time: it may have executed a program.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// A line of the screen.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ProcessRow {
    pub(super) pid: i32,
    pub(super) name: String,
    /// Rings that have been used.
    pub(super) rings: usize,
    /// Requests since the start.
    pub(super) requests: u64,
    /// Requests a second.
    pub(super) rate: f64,
    /// The engine's threads that execute requests.
    pub(super) workers: usize,
    /// Writes that are delayed at this moment.
    pub(super) throttled: u64,
}

/// A process as it was at the last look.
#[derive(Debug)]
struct KnownProcess {
    /// In ticks since the machine's start: a number may be another process' by now.
    started: u64,
    engine: Option<(RemoteProcess, StatsBlock)>,
    asked: Instant,
    /// Requests, and when.
    last: Option<(u64, Instant)>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct ProcessScan {
    known: HashMap<i32, KnownProcess>,
}

impl ProcessScan {
    /// All that there are now.
    pub(super) fn look(&mut self) -> Vec<ProcessRow> {
        let started: HashMap<i32, u64> = pids().filter_map(|pid| Some((pid, started(pid)?))).collect();
        self.known.retain(|pid, known| started.get(pid) == Some(&known.started));
        for (&pid, &started) in &started {
            let is_asked = self.known.get(&pid).is_some_and(|known| known.engine.is_some() || known.asked.elapsed() < ASK_AGAIN);
            if !is_asked {
                let engine = RemoteProcess::find(pid).and_then(|process| StatsBlock::find(&process).map(|block| (process, block)));
                self.known.insert(pid, KnownProcess { started, engine: engine.ok(), asked: Instant::now(), last: None });
            }
        }
        self.known.iter_mut().filter_map(|(&pid, known)| known.row(pid)).collect()
    }
}

impl KnownProcess {
    /// `None`: it has no engine, or none any more.
    fn row(&mut self, pid: i32) -> Option<ProcessRow> {
        let (process, block) = self.engine.as_ref()?;
        let Ok(EngineCounters { rings, submitted, throttled_now }) = block.counters(process) else {
            self.engine = None;
            return None;
        };
        // This program itself has counters, too.
        if rings == 0 {
            return None;
        }
        let now = Instant::now();
        let rate = self.last.map_or(0.0, |(before, at)| {
            // An executed program begins anew.
            submitted.checked_sub(before).unwrap_or(submitted) as f64 / (now - at).as_secs_f64().max(1e-3)
        });
        self.last = Some((submitted, now));
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).map_or_else(|_| String::new(), |name| name.trim_end().to_owned());
        Some(ProcessRow { pid, name, rings, requests: submitted, rate, workers: workers(pid), throttled: throttled_now })
    }
}

fn pids() -> impl Iterator<Item = i32> {
    fs::read_dir("/proc").into_iter().flatten().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// The time of its start, in `/proc/PID/stat` the 20th field behind the name.
fn started(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()
}

/// Threads with the names of the engine's workers.
fn workers(pid: i32) -> usize {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.starts_with("iou-wrk-") || name.starts_with("iou-let-")).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_an_engine_is_no_row() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = child.id().cast_signed();
        let rows = ProcessScan::default().look();
        let since = started(pid);
        child.kill().and_then(|()| child.wait()).unwrap();
        assert!(rows.iter().all(|row| row.pid != pid) && since > Some(0), "{rows:?}");
    }
}
