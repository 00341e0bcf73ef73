//! Counters as OpenMetrics text, for Prometheus.

use std::fmt::Write;

use uringlet_sys::stats::COUNTER_DOCS;
use uringlet_trace::summary::{SummaryKey, SummaryRow};

use super::block::{CounterDesc, CounterKind};
use super::observed::Observed;
use super::sampled::Sampled;
use super::show::is_shared;

/// Nanoseconds are seconds here.
const NS: f64 = 1e-9;

/// All families, and the end that the format requires.
pub(super) fn text(observed: &[Observed], sampled: Option<&Sampled>) -> String {
    let mut text = String::new();
    let mut counters: Vec<&CounterDesc> = Vec::new();
    for counter in observed.iter().flat_map(|(_, seen)| &seen.counters) {
        if !counters.contains(&counter) {
            counters.push(counter);
        }
    }
    counters.into_iter().for_each(|counter| counter_family(&mut text, counter, observed));
    if let Some(sampled) = sampled {
        sampled_families(&mut text, sampled);
    }
    text + "# EOF\n"
}

/// One counter of all rings of all processes.
fn counter_family(text: &mut String, counter: &CounterDesc, observed: &[Observed]) {
    let is_time = counter.name.ends_with("_ns");
    let name = format!("uringlet_{}", counter.name.strip_suffix("_ns").map_or(counter.name.clone(), |name| format!("{name}_seconds")));
    let about = COUNTER_DOCS.iter().find(|(known, _)| *known == counter.name).map_or("", |(_, about)| about);
    let (kind, suffix) = if counter.kind == CounterKind::Count { ("counter", "_total") } else { ("gauge", "") };
    let unit = is_time.then_some("seconds");
    head(text, &name, kind, unit, &about.replace(", ns.", "."));
    for (process, seen) in observed {
        let Some(at) = seen.counters.iter().position(|known| known == counter) else { continue };
        for ring in &seen.rings {
            let index = if is_shared(seen, ring) { format!("{}+", ring.index) } else { ring.index.to_string() };
            let value = if is_time { ring.values[at] as f64 * NS } else { ring.values[at] as f64 };
            let labels = [("pid", process.pid.to_string()), ("program", process.name.clone()), ("ring", index)];
            sample(text, &format!("{name}{suffix}"), &labels, value);
        }
    }
}

/// Requests that have ended while they were counted. They are gauges: each run counts anew.
fn sampled_families(text: &mut String, sampled: &Sampled) {
    head(text, "uringlet_sampled_seconds", "gauge", Some("seconds"), "For how long requests were counted.");
    sample(text, "uringlet_sampled_seconds", &[], sampled.time.as_secs_f64());
    head(text, "uringlet_sampled_dropped_records", "gauge", None, "Records that found no room: requests that are not counted.");
    sample(text, "uringlet_sampled_dropped_records", &[], sampled.drops as f64);
    for (label, key) in [("opcode", SummaryKey::Opcode), ("road", SummaryKey::Route)] {
        let rows = sampled.summary.rows(key);
        let mut family = |name: &str, unit: Option<&str>, about: &str, value: fn(&SummaryRow) -> f64| {
            let name = format!("uringlet_sampled_{label}_{name}");
            head(text, &name, "gauge", unit, about);
            rows.iter().for_each(|row| sample(text, &name, &[(label, row.name.clone())], value(row)));
        };
        family("requests", None, "Results of requests.", |row| row.count as f64);
        family("errors", None, "Of these, negative.", |row| row.errors as f64);
        family("bytes", Some("bytes"), "Bytes that they moved.", |row| row.bytes as f64);
        let name = format!("uringlet_sampled_{label}_latency_seconds");
        head(text, &name, "summary", Some("seconds"), "From submission to completion.");
        for row in &rows {
            for (quantile, ns) in [("0.5", row.p50_ns), ("0.99", row.p99_ns), ("1", row.max_ns)] {
                sample(text, &name, &[(label, row.name.clone()), ("quantile", quantile.to_owned())], ns as f64 * NS);
            }
            sample(text, &format!("{name}_count"), &[(label, row.name.clone())], row.count as f64);
            sample(text, &format!("{name}_sum"), &[(label, row.name.clone())], row.total_ns as f64 * NS);
        }
    }
}

fn head(text: &mut String, name: &str, kind: &str, unit: Option<&str>, about: &str) {
    let _ = writeln!(text, "# TYPE {name} {kind}");
    if let Some(unit) = unit {
        let _ = writeln!(text, "# UNIT {name} {unit}");
    }
    let _ = writeln!(text, "# HELP {name} {}", escaped(about));
}

fn sample(text: &mut String, name: &str, labels: &[(&str, String)], value: f64) {
    let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
    let _ = writeln!(text, "{name}{labels} {value}");
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::super::block::{RingCounters, Snapshot};
    use super::super::process::RemoteProcess;
    use super::*;

    #[test]
    fn families_have_types_and_samples_labels() {
        let counter = |kind, name: &str| CounterDesc { kind, name: name.into() };
        let seen = Snapshot {
            object: "x".into(),
            version: "1".into(),
            counters: vec![counter(CounterKind::Count, "throttled_ns"), counter(CounterKind::Max, "throttled_max")],
            block_count: 64,
            rings: vec![RingCounters { index: 2, values: vec![1_500_000_000, 3] }, RingCounters { index: 63, values: vec![0, 1] }],
            events_total: 0,
            events: Vec::new(),
        };
        let observed = [(RemoteProcess { pid: 7, name: "a\"b".into() }, seen)];
        assert_eq!(
            text(&observed, None),
            "# TYPE uringlet_throttled_seconds counter\n# UNIT uringlet_throttled_seconds seconds\n\
             # HELP uringlet_throttled_seconds Sum of these delays.\n\
             uringlet_throttled_seconds_total{pid=\"7\",program=\"a\\\"b\",ring=\"2\"} 1.5\n\
             uringlet_throttled_seconds_total{pid=\"7\",program=\"a\\\"b\",ring=\"63+\"} 0\n\
             # TYPE uringlet_throttled_max gauge\n# HELP uringlet_throttled_max Most writes delayed at one moment.\n\
             uringlet_throttled_max{pid=\"7\",program=\"a\\\"b\",ring=\"2\"} 3\n\
             uringlet_throttled_max{pid=\"7\",program=\"a\\\"b\",ring=\"63+\"} 1\n# EOF\n"
        );
    }
}
