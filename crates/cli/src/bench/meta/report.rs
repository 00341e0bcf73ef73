//! The tables and goals.

use super::super::goal::{Bound, Goal};
use super::super::job::{Jobs, VALUE};
use super::super::table::TextTable;
use super::plan::{ATTACHED, CALLS, COLUMNS, KERNEL, OPS, title};

pub(super) fn text(jobs: &Jobs, goals: &[Goal], notes: &[String]) -> String {
    let mut titles: Vec<&str> = jobs.0.iter().map(|job| job.cell.table.as_str()).collect();
    titles.dedup();
    let mut text: String = titles.into_iter().map(|title| table(jobs, title)).collect();
    text.push('\n');
    text.extend(goals.iter().map(Goal::text));
    text.extend(notes.iter().map(|note| format!("{note}\n")));
    text + &jobs.failures()
}

fn table(jobs: &Jobs, title: &str) -> String {
    let ratios = [format!("{ATTACHED} / {CALLS}"), format!("{ATTACHED} / {KERNEL}")];
    let header = ["", COLUMNS[0], COLUMNS[1], COLUMNS[2], &ratios[0], &ratios[1]];
    let mut table = TextTable::new(format!("{title}: ns an operation, median (min - max)"), header);
    for row in jobs.rows(title) {
        let cells = COLUMNS.map(|column| jobs.summary(title, row, column, VALUE).map_or_else(|| "-".to_owned(), |s| s.wide()));
        let ratios =
            [CALLS, KERNEL].map(|base| jobs.ratio(title, row, ATTACHED, base).map_or_else(|| "-".to_owned(), |r| format!("{r:.2}")));
        table.row(std::iter::once(row.to_owned()).chain(cells).chain(ratios));
    }
    table.text()
}

/// Of the time that the calls take, at most so much.
const LIMITS: [f64; 4] = [1.4, 1.4, 1.0, 1.1];

pub(super) fn goals(jobs: &Jobs) -> Vec<Goal> {
    let goal = |((_, row), limit): ((&str, &str), f64)| {
        let ratio = jobs.ratio(&title(64), row, ATTACHED, CALLS);
        Goal::new(format!("batches of 64: {row}, relative to calls"), Bound::AtMost, limit, ratio)
    };
    OPS.into_iter().zip(LIMITS).filter_map(goal).collect()
}
