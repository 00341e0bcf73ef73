//! `-c`: what all requests come to, by opcode and by file.

use std::collections::BTreeMap;
use std::fmt::Write;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::clock::TickClock;
use crate::opcodes::moves_bytes;
use crate::request::{CqeShown, Event, SubmittedRequest};
use crate::text;

/// Counts of requests that have something in common.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) count: u64,
    pub(crate) errors: u64,
    pub(crate) bytes: u64,
    /// ns.
    pub(crate) latency: Histogram<u64>,
    pub(crate) total_ns: u64,
}

impl Counted {
    pub(crate) fn new() -> Self {
        /// Longer latencies count as this.
        const HOUR_NS: u64 = 3_600_000_000_000;
        /// Significant digits.
        const DIGITS: u8 = 2;
        let latency = Histogram::new_with_bounds(1, HOUR_NS, DIGITS).unwrap_or_else(|_| unreachable!("these bounds are allowed"));
        Self { count: 0, errors: 0, bytes: 0, latency, total_ns: 0 }
    }

    pub(crate) fn add(&mut self, shown: &CqeShown, bytes: u64, ns: u64) {
        self.count += 1;
        self.errors += u64::from(shown.res < 0);
        self.bytes += bytes;
        self.total_ns += ns;
        self.latency.saturating_record(ns.max(1));
    }

    fn json(&self, key: &str, name: &str, share: f64) -> Value {
        json!({
            key: name, "count": self.count, "errors": self.errors, "bytes": self.bytes, "total_ns": self.total_ns, "share": share,
            "p50_ns": self.latency.value_at_quantile(0.5), "p99_ns": self.latency.value_at_quantile(0.99), "max_ns": self.latency.max(),
        })
    }
}

/// Bytes that a result stands for.
pub(crate) fn bytes_moved(submission: &SubmittedRequest, shown: &CqeShown) -> u64 {
    let moves = submission.opcode().is_some_and(moves_bytes) && !shown.is_notification;
    if moves { shown.res.max(0).unsigned_abs().into() } else { 0 }
}

/// See the module.
#[derive(Debug, Default)]
pub struct TraceSummary {
    by_opcode: BTreeMap<String, Counted>,
    by_file: BTreeMap<String, Counted>,
    by_road: BTreeMap<String, Counted>,
    unfinished: u64,
    /// Entries of the kernel's rings that were not seen.
    lost: u64,
}

/// What requests have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SummaryKey {
    /// The opcode.
    Opcode,
    /// The path of the file.
    File,
    /// How they were executed.
    Route,
}

/// Requests that have something in common.
#[derive(Clone, Debug, PartialEq)]
pub struct SummaryRow {
    /// What that is.
    pub name: String,
    /// Results.
    pub count: u64,
    /// Of these, negative.
    pub errors: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Sum of latencies.
    pub total_ns: u64,
    /// Latencies.
    pub p50_ns: u64,
    /// See `p50_ns`.
    pub p99_ns: u64,
    /// See `p50_ns`.
    pub max_ns: u64,
}

impl TraceSummary {
    /// Counts an event.
    pub fn add(&mut self, event: &Event, clock: &TickClock) {
        match event {
            Event::Completion(submission, shown) => self.add_completion(submission, shown, clock),
            Event::Unfinished(..) => self.unfinished += 1,
            Event::Lost(lost) => self.lost += lost.sqes + lost.cqes,
            Event::Process(_) | Event::Call(_) | Event::Posted(_) => {}
        }
    }

    fn add_completion(&mut self, submission: &SubmittedRequest, shown: &CqeShown, clock: &TickClock) {
        let bytes = bytes_moved(submission, shown);
        let ns = if submission.number == 0 { 0 } else { clock.ns(shown.ticks.wrapping_sub(submission.ticks)) };
        self.by_opcode.entry(text::name(submission)).or_insert_with(Counted::new).add(shown, bytes, ns);
        self.by_road.entry(shown.road_name()).or_insert_with(Counted::new).add(shown, bytes, ns);
        if let Some(path) = submission.path() {
            self.by_file.entry(path.to_owned()).or_insert_with(Counted::new).add(shown, bytes, ns);
        }
    }

    fn counted(&self, key: SummaryKey) -> &BTreeMap<String, Counted> {
        match key {
            SummaryKey::Opcode => &self.by_opcode,
            SummaryKey::File => &self.by_file,
            SummaryKey::Route => &self.by_road,
        }
    }

    /// The rows of a table, those that took most time first.
    #[must_use]
    pub fn rows(&self, key: SummaryKey) -> Vec<SummaryRow> {
        let at = |row: &Counted, quantile| row.latency.value_at_quantile(quantile);
        let row = |(name, row): (&str, &Counted)| SummaryRow {
            name: name.to_owned(),
            count: row.count,
            errors: row.errors,
            bytes: row.bytes,
            total_ns: row.total_ns,
            p50_ns: at(row, 0.5),
            p99_ns: at(row, 0.99),
            max_ns: row.latency.max(),
        };
        sorted(self.counted(key)).into_iter().map(row).collect()
    }

    /// The tables: by opcode, by road, by file.
    #[must_use]
    pub fn tables(&self) -> String {
        let mut text = table("opcode", &self.by_opcode);
        for (heading, counted) in [("road", &self.by_road), ("file", &self.by_file)] {
            if !counted.is_empty() {
                let _ = write!(text, "\n{}", table(heading, counted));
            }
        }
        if self.unfinished > 0 {
            let _ = writeln!(text, "\n{} unfinished", self.unfinished);
        }
        if self.lost > 0 {
            let _ = writeln!(text, "\n{} SQEs and CQEs were overwritten before they were seen", self.lost);
        }
        text
    }

    /// The same as one line of JSON.
    #[must_use]
    pub fn json(&self) -> String {
        let rows = |key: &str, counted: &BTreeMap<String, Counted>| {
            let all = total_ns(counted);
            sorted(counted).into_iter().map(|(name, row)| row.json(key, name, share(row, all))).collect::<Vec<_>>()
        };
        let object = json!({
            "event": "summary", "by_opcode": rows("op", &self.by_opcode), "by_file": rows("file", &self.by_file),
            "by_road": rows("road", &self.by_road), "unfinished": self.unfinished, "lost": self.lost,
        });
        format!("{object}\n")
    }
}

fn total_ns(counted: &BTreeMap<String, Counted>) -> u64 {
    counted.values().map(|row| row.total_ns).sum()
}

/// Of all the time that requests took, percent. Requests overlap: it is not the program's time.
fn share(row: &Counted, all_ns: u64) -> f64 {
    row.total_ns as f64 * 100.0 / all_ns.max(1) as f64
}

/// Those that took most time first.
fn sorted(counted: &BTreeMap<String, Counted>) -> Vec<(&str, &Counted)> {
    let mut rows: Vec<(&str, &Counted)> = counted.iter().map(|(name, row)| (name.as_str(), row)).collect();
    rows.sort_by_key(|(_, row)| std::cmp::Reverse(row.total_ns));
    rows
}

fn table(heading: &str, counted: &BTreeMap<String, Counted>) -> String {
    let mut text =
        format!("{:>6} {:>10} {:>8} {:>14} {:>9} {:>9} {:>9}  {heading}\n", "% time", "count", "errors", "bytes", "p50", "p99", "max");
    let all = total_ns(counted);
    for (name, row) in sorted(counted) {
        let at = |quantile| duration(row.latency.value_at_quantile(quantile));
        let _ = writeln!(
            text,
            "{:>6.2} {:>10} {:>8} {:>14} {:>9} {:>9} {:>9}  {name}",
            share(row, all),
            row.count,
            row.errors,
            row.bytes,
            at(0.5),
            at(0.99),
            duration(row.latency.max()),
        );
    }
    text
}

/// A duration with one digit behind the point.
#[must_use]
pub fn duration(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}
