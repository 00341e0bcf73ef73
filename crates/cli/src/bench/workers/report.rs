//! A table for each phase: rates, and what an item waited for locks.

use super::{CLASSES, ONE, SPLIT};
use crate::bench::goal::{Bound, Goal};
use crate::bench::job::Jobs;
use crate::bench::summary::{Summary, number};
use crate::bench::table::TextTable;

/// What is measured, and what it is called.
const PHASES: [(&str, &str); 3] =
    [("insert", "inserting, no worker takes any"), ("consume", "consuming, nobody inserts"), ("flow", "both at once")];

/// All tables, the goals, what failed.
pub(super) fn text(jobs: &Jobs, goals: &[Goal], work_ns: u32) -> String {
    let mut text: String = PHASES.iter().map(|&(phase, title)| table(jobs, phase, title, work_ns)).collect();
    text.push('\n');
    text.extend(goals.iter().map(Goal::text));
    text + &jobs.failures()
}

fn table(jobs: &Jobs, phase: &str, title: &str, work_ns: u32) -> String {
    let title = format!("{title}: million items/s of {work_ns} ns, median (least - most); what an item waits for locks, ns");
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

/// Where both classes are busy, at the number of workers where the split wins least.
pub(super) fn goals(jobs: &Jobs) -> Vec<Goal> {
    let worst = |phase| jobs.rows("both").iter().filter_map(|row| ratio_of(jobs, "both", row, phase)).min_by(f64::total_cmp);
    let goal = |phase, what: &str, limit| {
        Goal::new(format!("{what} where both classes are busy, of one lock's, at worst"), Bound::AtLeast, limit, worst(phase))
    };
    [goal("insert", "inserting", 1.5), goal("flow", "inserting and consuming", 1.0)].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::job::{BenchJob, Sample, TableCell};
    use crate::bench::stop::StopFlag;
    use std::time::Duration;

    #[test]
    fn the_worst_ratio_is_the_goals() {
        let mut jobs = Jobs::default();
        for (row, split) in [("1 worker", 6.0), ("2 workers", 4.0)] {
            for (column, value) in [(ONE, 2.0), (SPLIT, split)] {
                jobs.push(BenchJob::new(TableCell::new("both", row, column), Duration::ZERO, move |_| {
                    Ok(Sample::from([("insert".to_owned(), value)]))
                }));
            }
        }
        assert_eq!(jobs.run_rounds(1, &StopFlag::default(), || Ok(())), Ok(true));
        let goals = goals(&jobs);
        assert_eq!(goals.len(), 1);
        assert!(goals[0].text().contains("at least 1.50: 2.00, met"));
        assert!(text(&jobs, &goals, 200).contains("both, 2 workers"));
    }
}
