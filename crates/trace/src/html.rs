//! One page with the whole trace in numbers: heat maps of latencies, the slowest requests, files,
//! threads, chains. It needs no network: data, style and script are in it.

mod chains;
mod heat;
mod slowest;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::clock::TickClock;
use crate::request::{CqeShown, Event, SubmittedRequest};
use crate::summary::{Counted, bytes_moved};
use crate::text;
use chains::LinkChains;
use heat::{COLUMNS, HeatMaps, ROWS_AN_OCTAVE};
use slowest::SlowestRequests;

const PAGE: &str = include_str!("html/page.html");
/// Where the data goes.
const DATA: &str = "@DATA@";
/// Rows of a table: more make the page slow, and nobody reads them.
const ROWS: usize = 500;

/// What a thread has done.
#[derive(Debug)]
struct ThreadWork {
    pid: u32,
    submitted: Counted,
    completed: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct HtmlReport {
    programs: Vec<String>,
    processes: BTreeSet<u32>,
    /// Of the first submission and of the last result, ticks.
    span: Option<(u64, u64)>,
    all: Option<Counted>,
    by_opcode: BTreeMap<String, Counted>,
    by_file: BTreeMap<String, Counted>,
    threads: BTreeMap<u32, ThreadWork>,
    heat: HeatMaps,
    slowest: SlowestRequests,
    chains: LinkChains,
    unfinished: u64,
    lost: u64,
}

impl HtmlReport {
    /// Counts an event.
    pub fn add(&mut self, event: &Event, clock: &TickClock) {
        match event {
            Event::Process(start) => {
                self.processes.insert(start.pid);
                if !self.programs.contains(&start.name) {
                    self.programs.push(start.name.clone());
                }
            }
            Event::Completion(submission, shown) if submission.number != 0 && !shown.is_unseen => self.completion(submission, shown, clock),
            Event::Unfinished(..) => self.unfinished += 1,
            Event::Lost(lost) => self.lost += lost.sqes + lost.cqes,
            Event::Completion(..) | Event::Posted(_) | Event::Call(_) => {}
        }
    }

    fn completion(&mut self, submission: &SubmittedRequest, shown: &CqeShown, clock: &TickClock) {
        let (first, last) = self.span.unwrap_or((submission.ticks, shown.ticks));
        self.span = Some((first.min(submission.ticks), last.max(shown.ticks)));
        self.processes.insert(submission.pid);
        let (bytes, ns) = (bytes_moved(submission, shown), clock.ns(shown.ticks.wrapping_sub(submission.ticks)));
        let count = |counted: &mut Counted| counted.add(shown, bytes, ns);
        count(self.all.get_or_insert_with(Counted::new));
        let op = text::name(submission);
        count(self.by_opcode.entry(op.clone()).or_insert_with(Counted::new));
        if let Some(path) = submission.path() {
            count(self.by_file.entry(path.to_owned()).or_insert_with(Counted::new));
        }
        let thread = |pid| move || ThreadWork { pid, submitted: Counted::new(), completed: 0 };
        count(&mut self.threads.entry(submission.tid).or_insert_with(thread(submission.pid)).submitted);
        self.threads.entry(shown.tid).or_insert_with(thread(submission.pid)).completed += 1;
        self.heat.add(&op, submission.ticks, ns);
        self.slowest.add(submission, shown, ns);
        self.chains.add(submission, shown, &op);
    }

    /// The page.
    #[must_use]
    pub fn page(&self, clock: &TickClock) -> String {
        // Nothing in the data may end the element that it is in.
        let data = self.data(clock).to_string().replace('<', "\\u003c");
        PAGE.replacen(DATA, &data, 1)
    }

    fn data(&self, clock: &TickClock) -> Value {
        let (first, last) = self.span.unwrap_or_default();
        let span_ns = clock.ns(last.wrapping_sub(first)).max(1);
        let all = self.all.as_ref();
        json!({
            "programs": self.programs,
            "processes": self.processes.len(),
            "begin_ms": clock.epoch_ns(first) / 1_000_000,
            "span_ns": span_ns,
            "requests": all.map_or(0, |all| all.count),
            "errors": all.map_or(0, |all| all.errors),
            "bytes": all.map_or(0, |all| all.bytes),
            "unfinished": self.unfinished,
            "lost": self.lost,
            "columns": COLUMNS,
            "rows_an_octave": ROWS_AN_OCTAVE,
            "heat": self.heat.maps(first, span_ns, clock),
            "tables": [self.opcodes(), self.slowest.table(first, clock), self.files(), self.thread_table(), self.chains.table(first, clock)],
        })
    }

    fn opcodes(&self) -> Value {
        counted_table("Opcodes", "opcode", &self.by_opcode)
    }

    fn files(&self) -> Value {
        counted_table("Files", "file", &self.by_file)
    }

    fn thread_table(&self) -> Value {
        let row = |(tid, work): (&u32, &ThreadWork)| {
            let submitted = &work.submitted;
            json!([tid, work.pid, submitted.count, submitted.errors, submitted.bytes, work.completed, submitted.total_ns])
        };
        let mut threads: Vec<_> = self.threads.iter().collect();
        threads.sort_by_key(|(_, work)| std::cmp::Reverse(work.submitted.count + work.completed));
        json!({
            "name": "Threads",
            "columns": [["thread", "word"], ["process", "word"], ["submitted", "count"], ["errors", "count"], ["bytes", "bytes"], ["completed", "count"], ["time of its requests", "time"]],
            "rows": threads.into_iter().take(ROWS).map(row).collect::<Vec<_>>(),
        })
    }
}

/// Rows of what took most time.
fn counted_table(name: &str, key: &str, counted: &BTreeMap<String, Counted>) -> Value {
    let mut rows: Vec<_> = counted.iter().collect();
    rows.sort_by_key(|(_, counted)| std::cmp::Reverse(counted.total_ns));
    let row = |(name, counted): (&String, &Counted)| {
        let [p50, p99] = [0.5, 0.99].map(|quantile| counted.latency.value_at_quantile(quantile));
        json!([name, counted.count, counted.errors, counted.bytes, p50, p99, counted.latency.max(), counted.total_ns])
    };
    json!({
        "name": name,
        "columns": [[key, "text"], ["count", "count"], ["errors", "count"], ["bytes", "bytes"], ["p50", "time"], ["p99", "time"], ["max", "time"], ["total", "time"]],
        "rows": rows.into_iter().take(ROWS).map(row).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests;
