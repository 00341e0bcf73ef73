//! A table for each phase: throughput, and the time that an item waits for locks.

use super::plan::{CLASSES, ONE, SPLIT};
use crate::bench::goal::{Bound, Goal};
use crate::bench::job::Jobs;
use crate::bench::summary::{Summary, number};
use crate::bench::table::TextTable;

/// The phases and their titles.
const PHASES: [(&str, &str); 3] =
    [("insert", "inserting, workers blocked"), ("consume", "consuming, no submitter"), ("flow", "both at once")];

/// All tables, the goals and the failures.
pub(super) fn text(jobs: &Jobs, goals: &[Goal], work_ns: u32) -> String {
    let mut text: String = PHASES.iter().map(|&(phase, title)| table(jobs, phase, title, work_ns)).collect();
    text.push('\n');
    text.extend(goals.iter().map(Goal::text));
    text + &jobs.failures()
}

fn table(jobs: &Jobs, phase: &str, title: &str, work_ns: u32) -> String {
    let title = format!("{title}: million items/s of {work_ns} ns, median (min - max); lock wait per item, ns");
    let ratio = format!("{SPLIT} / {ONE}");
    let mut table = TextTable::new(title, ["", ONE, SPLIT, &ratio, &format!("{ONE}, ns"), &format!("{SPLIT}, ns")]);
    for classes in CLASSES {
        for row in jobs.rows(classes) {
            let of = |column, field: &str| jobs.summary(classes, row, column, field);
            let wide = |summary: Option<Summary>| summary.map_or_else(|| "-".to_owned(), Summary::wide);
            let middle = |summary: Option<Summary>| summary.map_or_else(|| "-".to_owned(), |s| number(s.median));
            let wait = format!("{phase}_wait_ns");
            let quotient = ratio_of(jobs, classes, row, phase).map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
            table.row([
                format!("{classes}, {row}"),
                wide(of(ONE, phase)),
                wide(of(SPLIT, phase)),
                quotient,
                middle(of(ONE, &wait)),
                middle(of(SPLIT, &wait)),
            ]);
        }
    }
    table.text()
}

fn ratio_of(jobs: &Jobs, classes: &str, row: &str, phase: &str) -> Option<f64> {
    let median = |column| jobs.summary(classes, row, column, phase).map(|s| s.median);
    Some(median(SPLIT)? / median(ONE)?)
}

/// The lowest ratio over all numbers of workers, with both classes busy.
pub(super) fn goals(jobs: &Jobs) -> Vec<Goal> {
    let worst = |phase| jobs.rows("both").iter().filter_map(|row| ratio_of(jobs, "both", row, phase)).min_by(f64::total_cmp);
    let goal = |phase, what: &str, limit| {
        Goal::new(format!("{what} with both classes busy, relative to one lock, worst case"), Bound::AtLeast, limit, worst(phase))
    };
    [goal("insert", "inserting", 1.5), goal("flow", "inserting and consuming", 1.0)].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::job::{BenchJob, Sample, TableCell};
    use crate::bench::outcome::BenchOutcome;
    use crate::bench::stop::StopFlag;
    use std::time::Duration;

    #[test]
    fn the_lowest_ratio_decides_the_goal() {
        let mut jobs = Jobs::default();
        for (row, split) in [("1 worker", 6.0), ("2 workers", 4.0)] {
            for (column, value) in [(ONE, 2.0), (SPLIT, split)] {
                jobs.push(BenchJob::new(TableCell::new("both", row, column), Duration::ZERO, move |_| {
                    Ok(Sample::from([("insert".to_owned(), value)]))
                }));
            }
        }
        assert_eq!(jobs.run_rounds(1, &StopFlag::default(), || Ok(())), Ok(BenchOutcome::Complete));
        let goals = goals(&jobs);
        assert_eq!(goals.len(), 1);
        assert!(goals[0].text().contains("at least 1.50: 2.00, met"));
        assert!(text(&jobs, &goals, 200).contains("both, 2 workers"));
    }
}
