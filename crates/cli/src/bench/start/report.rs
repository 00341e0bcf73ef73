//! The tables and goals.

use super::super::goal::{Bound, Goal};
use super::super::job::{Jobs, VALUE};
use super::super::summary::{Summary, number};
use super::super::table::TextTable;
use super::plan::{ALONE, ATTACHED, CACHED, CHILDREN, LARGE, RUN, SCANNED, SMALL};

/// The fastest run of a round.
const FASTEST: &str = "min";

pub(super) fn text(jobs: &Jobs, goals: &[Goal], notes: &[String]) -> String {
    let mut text = children(jobs) + &runs(jobs);
    text.push('\n');
    text.extend(goals.iter().map(Goal::text));
    text.extend(notes.iter().map(|note| format!("{note}\n")));
    text + &jobs.failures()
}

fn children(jobs: &Jobs) -> String {
    let title = "children, fork, exec and end: \u{b5}s, median (min - max); the fastest run of all";
    let mut table = TextTable::new(title, ["", "alone", "attached", "more", "fastest alone", "attached", "more"]);
    for row in jobs.rows(CHILDREN) {
        let of = |field| [ALONE, ATTACHED].map(|column| jobs.summary(CHILDREN, row, column, field));
        let medians = of(VALUE);
        let [alone, attached] = medians.map(|summary| summary.map_or_else(|| "-".to_owned(), Summary::wide));
        let fastest = [ALONE, ATTACHED].map(|column| fastest(jobs, CHILDREN, row, column));
        let [fast_alone, fast_attached] = fastest.map(or_dash);
        let more = |[alone, attached]: [Option<f64>; 2]| or_dash(alone.zip(attached).map(|(alone, attached)| attached - alone));
        let medians = medians.map(|summary| summary.map(|summary| summary.median));
        table.row([row.to_owned(), alone, attached, more(medians), fast_alone, fast_attached, more(fastest)]);
    }
    table.text()
}

fn runs(jobs: &Jobs) -> String {
    let title = "`uringlet run`, to the program's end: ms, the fastest run of all";
    let mut table = TextTable::new(title, ["", "alone", "cached", "more", "scanned", "more"]);
    for row in jobs.rows(RUN) {
        let [alone, cached, scanned] = [ALONE, CACHED, SCANNED].map(|column| or_dash(milliseconds(jobs, row, column)));
        let [cached_more, scanned_more] = [CACHED, SCANNED].map(|column| or_dash(more(jobs, row, column)));
        table.row([row.to_owned(), alone, cached, cached_more, scanned, scanned_more]);
    }
    table.text()
}

pub(super) fn goals(jobs: &Jobs) -> Vec<Goal> {
    let is_in = |names: &'static [&str]| move |row: &&str| names.contains(row);
    let worst = |rows: Vec<&str>| rows.into_iter().filter_map(|row| Some((row.to_owned(), more(jobs, row, CACHED)?))).collect::<Vec<_>>();
    let rows = jobs.rows(RUN);
    let small = worst(rows.iter().copied().filter(is_in(&SMALL)).collect());
    let large = worst(rows.iter().copied().filter(is_in(&LARGE)).collect());
    let goals = [
        Goal::worst("ms more for a small program, cached", Bound::AtMost, 2.0, small),
        Goal::worst("ms more for a large program, cached", Bound::AtMost, 15.0, large),
    ];
    goals.into_iter().flatten().collect()
}

/// What a start in this way takes longer than alone, ms.
fn more(jobs: &Jobs, row: &str, column: &str) -> Option<f64> {
    Some(milliseconds(jobs, row, column)? - milliseconds(jobs, row, ALONE)?)
}

fn milliseconds(jobs: &Jobs, row: &str, column: &str) -> Option<f64> {
    fastest(jobs, RUN, row, column).map(|microseconds| microseconds / 1000.0)
}

fn fastest(jobs: &Jobs, table: &str, row: &str, column: &str) -> Option<f64> {
    jobs.summary(table, row, column, FASTEST).map(|summary| summary.min)
}

fn or_dash(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), number)
}

#[cfg(test)]
mod tests {
    use super::super::super::job::{BenchJob, Sample, TableCell};
    use super::*;
    use std::time::Duration;

    /// Jobs with one sample each: the fastest run and twice as much as the median, \u{b5}s.
    fn measured(cells: &[(&str, &str, &str, f64)]) -> Jobs {
        let job = |&(table, row, column, fastest): &(&str, &str, &str, f64)| {
            let mut job = BenchJob::new(TableCell::new(table, row, column), Duration::ZERO, |_| Err("not run".into()));
            job.samples.push(Sample::from([(FASTEST.to_owned(), fastest), (VALUE.to_owned(), 2.0 * fastest)]));
            job
        };
        Jobs(cells.iter().map(job).collect())
    }

    #[test]
    fn costs_are_differences_of_the_fastest_runs() {
        let jobs = measured(&[
            (CHILDREN, "true", ALONE, 500.0),
            (CHILDREN, "true", ATTACHED, 610.0),
            (RUN, "ls", ALONE, 1000.0),
            (RUN, "ls", CACHED, 2500.0),
            (RUN, "node", ALONE, 40_000.0),
            (RUN, "node", CACHED, 58_000.0),
            (RUN, "node", SCANNED, 90_000.0),
        ]);
        let goals = goals(&jobs);
        let text = text(&jobs, &goals, &["a note".to_owned()]);
        assert!(goals[0].is_met() && !goals[1].is_met(), "{text}");
        let row = |name: &str| text.lines().find(|line| line.trim_start().starts_with(name)).unwrap_or_default().to_owned();
        for (name, cells) in [("true", ["610", "110"]), ("ls", ["2.50", "1.50"]), ("node", ["18.0", "50.0"])] {
            assert!(cells.iter().all(|cell| row(name).contains(cell)), "{name}: {text}");
        }
        assert!(row("ls").contains('-') && text.ends_with("a note\n"), "{text}");
    }
}
