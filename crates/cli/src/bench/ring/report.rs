//! Tables, plot and goals of `uringlet bench ring`.

use super::plan::{ATTACHED, KERNEL, PSYNC, PWRITE, ResultTable, RingPlan};
use crate::bench::goal::{Bound, Goal};
use crate::bench::job::{Jobs, VALUE};
use crate::bench::plot::{Panel, Plot};
use crate::bench::table::TextTable;

/// The column that the last column of a table is divided by.
fn ratio_of(results: ResultTable) -> Option<&'static str> {
    match results {
        ResultTable::Enter => None,
        ResultTable::Nop => Some(KERNEL),
        ResultTable::Write => Some(PWRITE),
        ResultTable::Fio => Some(PSYNC),
    }
}

/// All tables with medians and extremes, the goals, the notes and the failures.
pub(super) fn text(plan: &RingPlan, goals: &[Goal]) -> String {
    let mut text: String = ResultTable::ALL.into_iter().filter_map(|table| table_text(&plan.jobs, table)).collect();
    text.push('\n');
    text.extend(goals.iter().map(Goal::text));
    text.extend(plan.notes.iter().map(|note| format!("{note}\n")));
    text + &plan.jobs.failures()
}

fn table_text(jobs: &Jobs, results: ResultTable) -> Option<String> {
    let rows = jobs.rows(results.title());
    let base = ratio_of(results);
    let header = std::iter::once(String::new()).chain(results.columns().iter().map(ToString::to_string));
    let mut table =
        TextTable::new(format!("{}: median (min - max)", results.title()), header.chain(base.map(|base| format!("{ATTACHED} / {base}"))));
    for row in &rows {
        let cell = |column: &&str| {
            let summary = jobs.summary(results.title(), row, column, VALUE);
            summary.map_or_else(|| "-".to_owned(), |s| s.divided(results.unit()).wide())
        };
        let ratio = base.and_then(|base| jobs.ratio(results.title(), row, ATTACHED, base));
        let cells = std::iter::once((*row).to_owned()).chain(results.columns().iter().map(cell));
        table.row(cells.chain(ratio.map(|ratio| format!("{ratio:.2}"))));
    }
    (!rows.is_empty()).then(|| table.text())
}

pub(super) fn goals(jobs: &Jobs) -> Vec<Goal> {
    let rewritten = jobs.summary(ResultTable::Enter.title(), "inline, constant number: rewritten", ATTACHED, VALUE);
    let ratio = |results: ResultTable, row, base| jobs.ratio(results.title(), row, ATTACHED, base);
    let goals = [
        Goal::new("ns for a rewritten call", Bound::AtMost, 30.0, rewritten.map(|s| s.median)),
        Goal::new("NOP batch 32, relative to the kernel's ring", Bound::AtLeast, 2.0, ratio(ResultTable::Nop, "batch 32", KERNEL)),
        Goal::new("writes at depth 1, relative to pwrite", Bound::AtLeast, 0.95, ratio(ResultTable::Write, "depth 1", PWRITE)),
        Goal::new("fio at depth 1, relative to psync", Bound::AtLeast, 0.8, ratio(ResultTable::Fio, "depth 1", PSYNC)),
    ];
    goals.into_iter().flatten().collect()
}

/// Rates by batch or depth, the number at the end of each row's name.
pub(super) fn plot(jobs: &Jobs) -> Plot {
    let line = |results: ResultTable, column: &str| {
        let rows = jobs.rows(results.title());
        let point = |row: &&str| Some((row.rsplit(' ').next()?.parse().ok()?, jobs.summary(results.title(), row, column, VALUE)?));
        (column.to_owned(), rows.iter().filter_map(point).collect())
    };
    let panel = |results: ResultTable| Panel {
        title: results.title().split(',').next().unwrap_or_default().to_owned(),
        lines: results.columns().iter().map(|column| line(results, column)).collect(),
    };
    let panels =
        [ResultTable::Nop, ResultTable::Write, ResultTable::Fio].into_iter().filter(|results| !jobs.rows(results.title()).is_empty());
    Plot { x_label: "batch, depth".to_owned(), y_label: "per second".to_owned(), panels: panels.map(panel).collect() }
}
