//! Tables, goals and bars.

use super::super::bars::{BarGroup, Bars};
use super::super::goal::{Bound, Goal};
use super::super::job::{Jobs, VALUE};
use super::super::summary::Summary;
use super::super::table::TextTable;
use super::row::{ATTACHED, BenchRow, COLUMNS, KERNEL, Limit, PLAIN};

pub(super) fn text(rows: &[BenchRow], jobs: &Jobs, goals: &[Goal], notes: &[String]) -> String {
    let mut text: String = tables(rows).into_iter().map(|title| table(title, rows, jobs)).collect();
    text.push('\n');
    text.extend(goals.iter().map(Goal::text));
    text.extend(notes.iter().map(|note| format!("{note}\n")));
    text + &jobs.failures()
}

fn tables(rows: &[BenchRow]) -> Vec<&'static str> {
    let mut titles: Vec<&str> = rows.iter().map(|row| row.table).collect();
    titles.dedup();
    titles
}

fn table(title: &str, rows: &[BenchRow], jobs: &Jobs) -> String {
    let ratios = [format!("{ATTACHED} / {PLAIN}"), format!("{ATTACHED} / {KERNEL}")];
    let header = ["", COLUMNS[0], COLUMNS[1], COLUMNS[2], &ratios[0], &ratios[1]];
    let mut table = TextTable::new(format!("{title}: median (min - max)"), header);
    for row in rows.iter().filter(|row| row.table == title) {
        let name = if row.unit.name.is_empty() { row.name.to_owned() } else { format!("{}, {}", row.name, row.unit.name) };
        let cells = COLUMNS.map(|column| shown(row, jobs, column).map_or_else(|| "-".to_owned(), Summary::wide));
        let ratios = [PLAIN, KERNEL]
            .map(|base| jobs.ratio(row.table, row.name, ATTACHED, base).map_or_else(|| "-".to_owned(), |r| format!("{r:.2}")));
        table.row(std::iter::once(name).chain(cells).chain(ratios));
    }
    table.text()
}

/// In the row's unit.
fn shown(row: &BenchRow, jobs: &Jobs, column: &str) -> Option<Summary> {
    jobs.summary(row.table, row.name, column, VALUE).map(|summary| summary.divided(row.unit.size))
}

pub(super) fn goals(rows: &[BenchRow], jobs: &Jobs) -> Vec<Goal> {
    let of_row = |row: &BenchRow| row.limits.iter().filter_map(|limit| goal(row, jobs, *limit)).collect::<Vec<_>>();
    rows.iter().flat_map(of_row).collect()
}

fn goal(row: &BenchRow, jobs: &Jobs, limit: Limit) -> Option<Goal> {
    let what = format!("{}: {}", row.table, row.name);
    match limit {
        Limit::Times(base, limit) => {
            let ratio = jobs.ratio(row.table, row.name, ATTACHED, base);
            Goal::new(format!("{what}, relative to {base}"), Bound::AtMost, limit, ratio)
        }
        Limit::Over(base, limit) => {
            let more = shown(row, jobs, ATTACHED)?.median - shown(row, jobs, base)?.median;
            Goal::new(format!("{what}, {} more than {base}", row.unit.name), Bound::AtMost, limit, Some(more))
        }
    }
}

/// Each row relative to the kernel's ring, or to plain calls where there is none.
pub(super) fn bars(rows: &[BenchRow], jobs: &Jobs) -> Bars {
    let group = |row: &BenchRow| {
        let base = [KERNEL, PLAIN].into_iter().find_map(|column| shown(row, jobs, column))?.median;
        let bar = |column: &str| Some((column.to_owned(), shown(row, jobs, column)?.median / base));
        Some(BarGroup { title: format!("{}: {}", row.table, row.name), bars: COLUMNS.iter().filter_map(|column| bar(column)).collect() })
    };
    Bars { names: COLUMNS.map(str::to_owned).into(), groups: rows.iter().filter_map(group).collect() }
}

#[cfg(test)]
mod tests {
    use super::super::super::job::{BenchJob, Sample, TableCell};
    use super::super::row::{NS, US};
    use super::*;
    use std::time::Duration;

    fn measured(row: &BenchRow, column: &str, value: f64) -> BenchJob {
        let mut job = BenchJob::new(TableCell::new(row.table, row.name, column), Duration::ZERO, |_| Err("not run".into()));
        job.samples.push(Sample::from([(VALUE.to_owned(), value)]));
        job
    }

    #[test]
    fn limits_are_ratios_or_differences() {
        let rows = [
            BenchRow::new("reads", "one", NS, &[]).goal(Limit::Over(PLAIN, 60.0)),
            BenchRow::new("reads", "two", US, &[]).goal(Limit::Times(KERNEL, 1.2)).goal(Limit::Times(PLAIN, 1.0)),
        ];
        let jobs = Jobs(vec![
            measured(&rows[0], PLAIN, 100.0),
            measured(&rows[0], ATTACHED, 150.0),
            measured(&rows[1], KERNEL, 10_000.0),
            measured(&rows[1], ATTACHED, 15_000.0),
        ]);
        let goals = goals(&rows, &jobs);
        let text = text(&rows, &jobs, &goals, &[]);
        assert_eq!(goals.iter().map(Goal::is_met).collect::<Vec<_>>(), [true, false], "{text}");
        assert!(text.contains("reads: two, relative to kernel's ring, at most 1.20: 1.50, not met"), "{text}");
        assert!(text.contains("two, µs") && text.contains("15.0") && !text.contains("15000"), "{text}");
        let svg = bars(&rows, &jobs).svg().unwrap();
        assert!(svg.contains("reads: two") && svg.contains("1.50"), "{svg}");
    }
}
