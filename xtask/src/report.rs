//! The end of `xtask ci`: a table of the stages, then the failures, so that the last lines of a log
//! name them.

use crate::test_counts::{Failure, TAIL_LINES, TestCounts};
use std::time::Duration;

/// A stage that was run.
#[derive(Debug)]
pub(crate) struct StageRow {
    pub(crate) stage: &'static str,
    pub(crate) counts: TestCounts,
    pub(crate) took: Duration,
}

/// Lines for all outputs together: with the names they fit into the end of a log.
const OUTPUT_LINES: usize = 24;
/// The fewest lines of an output that are of use.
const LEAST_LINES: usize = 4;
/// More names than this are counted, not listed.
const MOST_NAMES: usize = 20;

/// The whole summary.
pub(crate) fn render(rows: &[StageRow], took: Duration) -> String {
    let mut total = TestCounts::default();
    let mut text = format!("\n== summary after {} s\n", took.as_secs());
    for row in rows {
        let word = if row.counts.is_good() { "ok" } else { "FAILED" };
        text += &format!("{:<12} {word:<7} {:>4} s   {}\n", row.stage, row.took.as_secs(), row.counts);
        total.add(row.counts.clone());
    }
    text += &format!("{total}\n");
    for (row, repeated) in rows.iter().flat_map(|row| row.counts.repeated.iter().map(move |line| (row, line))) {
        text += &format!("repeated: {} {repeated}\n", row.stage);
    }
    text + &failures(rows)
}

/// Each failure with the end of its output, then all names again if there are many.
fn failures(rows: &[StageRow]) -> String {
    let unnamed = |row: &StageRow| Failure::new("?", "failed, and did not say what", &row.counts.to_string());
    let all: Vec<(&str, Failure)> = rows
        .iter()
        .filter(|row| !row.counts.is_good())
        .flat_map(|row| {
            let named = &row.counts.failures;
            let named = if named.is_empty() { vec![unnamed(row)] } else { named.clone() };
            named.into_iter().map(|failure| (row.stage, failure))
        })
        .collect();
    let lines = (OUTPUT_LINES / all.len().max(1)).clamp(LEAST_LINES, TAIL_LINES);
    let mut text = String::new();
    for (stage, failure) in &all {
        text += &format!("\nFAILED {stage}: {}: {}\n", failure.item, failure.verdict);
        let output = &failure.output;
        output[output.len().saturating_sub(lines)..].iter().for_each(|line| text += &format!("    {line}\n"));
    }
    if all.len() > 2 {
        text += "\nall failures:\n";
        all.iter().take(MOST_NAMES).for_each(|(stage, failure)| text += &format!("  {stage}: {}: {}\n", failure.item, failure.verdict));
    }
    if all.len() > MOST_NAMES {
        text += &format!("  and {} more\n", all.len() - MOST_NAMES);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(stage: &'static str, counts: TestCounts) -> StageRow {
        StageRow { stage, counts, took: Duration::from_secs(7) }
    }

    fn failed(names: &[&str]) -> TestCounts {
        let mut counts = TestCounts::default();
        let long: String = (0..100).map(|n| format!("line {n}\n")).collect();
        names.iter().for_each(|name| counts.add(TestCounts::failure(Failure::new(*name, "exit 1", &long))));
        counts
    }

    #[test]
    fn one_failure_ends_the_report() {
        let text = render(&[row("fmt", TestCounts::PASSED), row("conformance", failed(&["accept"]))], Duration::ZERO);
        let (_, told) = text.split_once("FAILED conformance: accept: exit 1\n").expect("the failure is named");
        assert_eq!(told.lines().count(), TAIL_LINES);
        assert!(told.ends_with("    line 99\n"));
    }

    #[test]
    fn the_last_forty_lines_name_ten_failures() {
        let names: Vec<_> = (0..10).map(|n| format!("test-{n}.")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let text = render(&[row("test", failed(&names))], Duration::ZERO);
        let lines: Vec<_> = text.lines().collect();
        let end = lines[lines.len() - 40..].join("\n");
        names.iter().for_each(|name| assert!(end.contains(name), "{name} is not in:\n{end}"));
    }

    #[test]
    fn a_failure_without_a_name_still_has_its_stage() {
        let counts = TestCounts { failed: 3, ..TestCounts::default() };
        assert!(render(&[row("tidy", counts)], Duration::ZERO).contains("FAILED tidy: ?"));
        assert!(!render(&[row("tidy", TestCounts::PASSED)], Duration::ZERO).contains("FAILED"));
    }
}
