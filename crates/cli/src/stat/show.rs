//! Counters as text and as JSON.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Map, Value, json};
use uringlet_sys::process::monotonic_ns;

use super::block::{CounterDesc, CounterKind, RingCounters, Snapshot, StatEvent};
use super::observed::Observed;
use super::process::RemoteProcess;

/// Whether the output contains events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventList {
    Omit,
    Include,
}

/// Number of rings that get a column.
const COLUMNS: usize = 6;

/// One object: the process, the totals, each ring with counters that are not 0.
pub(super) fn object(process: &RemoteProcess, seen: &Snapshot, events: EventList) -> Value {
    let named = |values: &[u64]| seen.counters.iter().zip(values).map(|(c, v)| (c.name.clone(), json!(v))).collect::<Map<_, _>>();
    let ring = |ring: &RingCounters| {
        let mut object = named(&ring.values);
        object.insert("ring".into(), json!(ring.index));
        object.insert("is_shared".into(), json!(is_shared(seen, ring)));
        Value::Object(object)
    };
    let mut document = json!({
        "pid": process.pid,
        "program": process.name,
        "engine": seen.version,
        "object": seen.object,
        "total": named(&seen.totals()),
        "rings": seen.rings.iter().map(ring).collect::<Vec<_>>(),
        "events_ever": seen.events_total,
    });
    if events == EventList::Include {
        document["events"] = seen.events.iter().map(event_json).collect();
    }
    document
}

/// All processes, and their counters combined.
pub(super) fn json(observed: &[Observed], events: EventList) -> Value {
    let processes: Vec<Value> = observed.iter().map(|(process, seen)| object(process, seen, events)).collect();
    let total = |(at, counter): (usize, &CounterDesc)| (counter.name.clone(), json!(combined(observed, at, counter)));
    let total: Map<_, _> = counters(observed).iter().enumerate().map(total).collect();
    json!({ "processes": processes, "total": total })
}

/// The counters that all processes have: those of the first. Engines of one layout have the same.
fn counters(observed: &[Observed]) -> &[CounterDesc] {
    observed.first().map_or(&[], |(_, seen)| &seen.counters)
}

fn combined(observed: &[Observed], at: usize, counter: &CounterDesc) -> u64 {
    let values = observed.iter().filter(|(_, seen)| seen.counters.get(at) == Some(counter)).map(|(_, seen)| seen.totals()[at]);
    if counter.kind == CounterKind::Max { values.max().unwrap_or(0) } else { values.fold(0, u64::wrapping_add) }
}

/// One table for each process, and one for all together.
pub(super) fn tables(observed: &[Observed], events: EventList) -> String {
    let mut text: String = observed.iter().map(|(process, seen)| table(process, seen, events) + "\n").collect();
    let _ = writeln!(text, "{} processes\n", observed.len());
    for (at, counter) in counters(observed).iter().enumerate() {
        row(&mut text, &plain_name(counter), std::iter::once(amount(counter, combined(observed, at, counter))));
    }
    text
}

fn event_json(event: &StatEvent) -> Value {
    json!({
        "number": event.number, "time_ns": event.time_ns, "event": event.kind, "ring": event.ring,
        "offset": event.offset, "wanted": event.wanted, "got": event.got,
    })
}

/// The last block is shared by many rings.
pub(super) fn is_shared(seen: &Snapshot, ring: &RingCounters) -> bool {
    ring.index + 1 == seen.block_count
}

/// One row per counter; one column for all rings and one for each of the first few.
pub(super) fn table(process: &RemoteProcess, seen: &Snapshot, events: EventList) -> String {
    let mut text = format!("process {} ({}), engine {} in {}\n\n", process.pid, process.name, seen.version, seen.object);
    let rings = &seen.rings[..seen.rings.len().min(COLUMNS)];
    let heading =
        |ring: &RingCounters| if is_shared(seen, ring) { format!("rings {}-", ring.index) } else { format!("ring {}", ring.index) };
    row(&mut text, "", std::iter::once("total".to_owned()).chain(rings.iter().map(heading)));
    for (at, (counter, total)) in seen.counters.iter().zip(seen.totals()).enumerate() {
        let values = std::iter::once(total).chain(rings.iter().map(|ring| ring.values[at]));
        row(&mut text, &plain_name(counter), values.map(|value| amount(counter, value)));
    }
    if seen.rings.len() > COLUMNS {
        let _ = writeln!(text, "\n{} more rings: --json shows them", seen.rings.len() - COLUMNS);
    }
    if events == EventList::Include {
        events_table(&mut text, seen);
    }
    text
}

fn row(text: &mut String, name: &str, cells: impl Iterator<Item = String>) {
    let _ = write!(text, "{name:<24}");
    for cell in cells {
        let _ = write!(text, " {cell:>14}");
    }
    text.push('\n');
}

fn events_table(text: &mut String, seen: &Snapshot) {
    let _ = writeln!(text, "\n{} events, the last {}:", seen.events_total, seen.events.len());
    let now_ns = monotonic_ns();
    for event in &seen.events {
        let _ = writeln!(text, "{:>10.3} s ago  {}", now_ns.saturating_sub(event.time_ns) as f64 / 1e9, in_words(event));
    }
}

fn in_words(event: &StatEvent) -> String {
    format!("{} ring {} offset {} wanted {} got {}", event.kind, event.ring, event.offset, event.wanted, event.got)
}

fn is_time(counter: &CounterDesc) -> bool {
    counter.name.ends_with("_ns")
}

/// The name without the unit, which is printed beside the number.
fn plain_name(counter: &CounterDesc) -> String {
    counter.name.strip_suffix("_ns").map_or_else(|| counter.name.clone(), |name| format!("{name}_time"))
}

fn amount(counter: &CounterDesc, value: u64) -> String {
    if is_time(counter) { format!("{:.3} s", value as f64 / 1e9) } else { value.to_string() }
}

/// The difference between two snapshots.
#[derive(Debug)]
pub(super) struct Rates {
    counters: Vec<CounterDesc>,
    /// Counts: per second. Gauges and maxima: the current value.
    values: Vec<f64>,
    seconds: f64,
    events: Vec<StatEvent>,
}

impl Rates {
    pub(super) fn between(before: &Snapshot, now: &Snapshot, elapsed: Duration) -> Self {
        let seconds = elapsed.as_secs_f64().max(1e-9);
        // False if the process has executed another program, whose counters start at 0.
        let is_same = before.counters == now.counters && before.events_total <= now.events_total;
        let old = if is_same { before.totals() } else { vec![0; now.counters.len()] };
        let value = |((counter, old), new): ((&CounterDesc, u64), u64)| match counter.kind {
            CounterKind::Count => new.checked_sub(old).unwrap_or(new) as f64 / seconds,
            CounterKind::Gauge | CounterKind::Max => new as f64,
        };
        let values = now.counters.iter().zip(old).zip(now.totals()).map(value).collect();
        let seen = if is_same { before.events_total } else { 0 };
        let events = now.events.iter().filter(|event| event.number >= seen).cloned().collect();
        Self { counters: now.counters.clone(), values, seconds, events }
    }

    /// One line with everything that changes, and one per event.
    pub(super) fn line(&self, events: EventList) -> String {
        let moving = self.counters.iter().zip(&self.values).filter(|(counter, value)| **value > 0.0 && counter.kind != CounterKind::Max);
        let words: Vec<String> = moving.map(|(counter, value)| Self::word(counter, *value)).collect();
        let mut text = if words.is_empty() { "nothing\n".to_owned() } else { words.join("  ") + "\n" };
        if events == EventList::Include {
            text.extend(self.events.iter().map(|event| format!("  {}\n", in_words(event))));
        }
        text
    }

    fn word(counter: &CounterDesc, value: f64) -> String {
        match counter.kind {
            CounterKind::Count if is_time(counter) => format!("{} {:.3} s/s", plain_name(counter), value / 1e9),
            CounterKind::Count => format!("{} {value:.0}/s", counter.name),
            CounterKind::Gauge | CounterKind::Max => format!("{} {value:.0}", counter.name),
        }
    }

    /// The same as one line of JSON.
    pub(super) fn json(&self, events: EventList) -> String {
        let of = |is_wanted: fn(CounterKind) -> bool| {
            let wanted = self.counters.iter().zip(&self.values).filter(|(counter, _)| is_wanted(counter.kind));
            wanted.map(|(counter, value)| (counter.name.clone(), json!(value))).collect::<Map<_, _>>()
        };
        let mut document = json!({
            "seconds": self.seconds,
            "per_second": of(|kind| kind == CounterKind::Count),
            "now": of(|kind| kind != CounterKind::Count),
        });
        if events == EventList::Include {
            document["events"] = self.events.iter().map(event_json).collect();
        }
        format!("{document}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(values: [u64; 4], events_total: u64) -> Snapshot {
        let counter = |kind, name: &str| CounterDesc { kind, name: name.into() };
        let event = |number| StatEvent { number, time_ns: 1, kind: "io_uring_short_write".into(), ring: 2, offset: 0, wanted: 9, got: 4 };
        Snapshot {
            object: "/lib/liburinglet.so".into(),
            version: "0.1.0".into(),
            counters: vec![
                counter(CounterKind::Count, "writes_inline"),
                counter(CounterKind::Count, "throttled_ns"),
                counter(CounterKind::Gauge, "throttled_now"),
                counter(CounterKind::Max, "throttled_max"),
            ],
            block_count: 64,
            rings: vec![RingCounters { index: 2, values: values.to_vec() }, RingCounters { index: 63, values: vec![1, 0, 1, 9] }],
            events_total,
            events: (0..events_total).map(event).collect(),
        }
    }

    fn process() -> RemoteProcess {
        RemoteProcess { pid: 7, name: "fio".into() }
    }

    #[test]
    fn the_table_has_totals_and_rings() {
        let text = table(&process(), &snapshot([10, 1_500_000_000, 2, 3], 1), EventList::Include);
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0][..3], ["process", "7", "(fio),"]);
        assert_eq!(rows[2], ["total", "ring", "2", "rings", "63-"]);
        assert_eq!(rows[3], ["writes_inline", "11", "10", "1"]);
        assert_eq!(rows[4], ["throttled_time", "1.500", "s", "1.500", "s", "0.000", "s"]);
        assert_eq!(rows[6], ["throttled_max", "9", "3", "9"]);
        assert!(text.ends_with("io_uring_short_write ring 2 offset 0 wanted 9 got 4\n"), "{text}");
    }

    #[test]
    fn processes_are_combined_by_kind() {
        let observed = [(process(), snapshot([10, 0, 2, 3], 0)), (process(), snapshot([1, 0, 1, 12], 0))];
        let document = json(&observed, EventList::Omit);
        assert_eq!((&document["total"]["writes_inline"], &document["total"]["throttled_max"]), (&json!(13), &json!(12)));
        assert_eq!(document["processes"].as_array().map(Vec::len), Some(2));
        assert!(tables(&observed, EventList::Omit).contains("\n2 processes\n\nwrites_inline                        13\n"));
    }

    #[test]
    fn json_has_totals_rings_and_events() {
        let document: Value = object(&process(), &snapshot([10, 0, 2, 3], 2), EventList::Include);
        assert_eq!(document["total"]["writes_inline"], 11);
        assert_eq!(document["total"]["throttled_max"], 9);
        assert_eq!(document["rings"][1]["is_shared"], true);
        assert_eq!(document["events"][1]["got"], 4);
    }

    #[test]
    fn counts_become_rates_and_gauges_stay() {
        let (before, now) = (snapshot([10, 0, 5, 6], 1), snapshot([60, 4_000_000_000, 2, 6], 2));
        let rates = Rates::between(&before, &now, Duration::from_secs(2));
        assert_eq!(
            rates.line(EventList::Include),
            "writes_inline 25/s  throttled_time 2.000 s/s  throttled_now 3\n  io_uring_short_write ring 2 offset 0 wanted 9 got 4\n"
        );
        let document: Value = serde_json::from_str(&rates.json(EventList::Omit)).unwrap();
        assert_eq!((&document["per_second"]["writes_inline"], &document["now"]["throttled_max"]), (&json!(25.0), &json!(9.0)));
        assert_eq!(document.get("events"), None);
    }

    #[test]
    fn an_idle_engine_prints_nothing() {
        let mut still = snapshot([10, 0, 0, 0], 0);
        still.rings.truncate(1);
        assert_eq!(Rates::between(&still, &still, Duration::from_secs(1)).line(EventList::Include), "nothing\n");
    }
}
