//! Tables for people, and whether the goals are met.

use std::fmt::Write;

use super::plan::{ATTACHED, Group, KERNEL, PSYNC, PWRITE, Plan, Series};

/// What of a series is told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Summary {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

pub(super) fn summary(values: &[f64]) -> Option<Summary> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (min, max) = (*sorted.first()?, *sorted.last()?);
    let middle = sorted.len() / 2;
    let median = if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
    Some(Summary { median, min, max })
}

fn find<'a>(plan: &'a Plan, group: Group, row: &str, column: &str) -> Option<&'a Series> {
    plan.series.iter().find(|series| series.group == group && series.row == row && series.column == column)
}

pub(super) fn median(plan: &Plan, group: Group, row: &str, column: &str) -> Option<f64> {
    summary(&find(plan, group, row, column)?.values).map(|summary| summary.median)
}

fn number(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn cell(series: Option<&Series>) -> String {
    match series.and_then(|series| summary(&series.values)) {
        Some(s) => format!("{} ({} - {})", number(s.median), number(s.min), number(s.max)),
        None => "-".to_owned(),
    }
}

/// What the last column of a table divides.
fn ratio_of(group: Group) -> Option<&'static str> {
    match group {
        Group::Enter => None,
        Group::Nop => Some(KERNEL),
        Group::Write => Some(PWRITE),
        Group::Fio => Some(PSYNC),
    }
}

fn rows(plan: &Plan, group: Group) -> Vec<&str> {
    let mut rows: Vec<&str> = plan.series.iter().filter(|series| series.group == group).map(|series| series.row.as_str()).collect();
    rows.dedup();
    rows
}

/// All tables: medians, with the least and the most.
pub(super) fn tables(plan: &Plan) -> String {
    let mut text = String::new();
    for group in Group::ALL {
        let rows = rows(plan, group);
        if !rows.is_empty() {
            table(&mut text, plan, group, &rows);
        }
    }
    text.push_str(&goals(plan));
    for note in &plan.notes {
        let _ = writeln!(text, "{note}");
    }
    for series in &plan.series {
        if let Some(failure) = &series.failure {
            let _ = writeln!(text, "{}, {}, {}: failed: {failure}", series.group.title(), series.row, series.column);
        }
    }
    text
}

fn table(text: &mut String, plan: &Plan, group: Group, rows: &[&str]) {
    let _ = write!(text, "\n{}: median (least - most)\n{:40}", group.title(), "");
    for column in group.columns() {
        let _ = write!(text, "{column:>26}");
    }
    let base = ratio_of(group);
    if let Some(base) = base {
        let _ = write!(text, "   {ATTACHED} / {base}");
    }
    text.push('\n');
    for row in rows {
        let _ = write!(text, "{row:40}");
        for column in group.columns() {
            let _ = write!(text, "{:>26}", cell(find(plan, group, row, column)));
        }
        if let Some(ratio) = base.and_then(|base| ratio(plan, group, row, base)) {
            let _ = write!(text, "   {ratio:.2}");
        }
        text.push('\n');
    }
}

fn ratio(plan: &Plan, group: Group, row: &str, base: &str) -> Option<f64> {
    Some(median(plan, group, row, ATTACHED)? / median(plan, group, row, base)?)
}

fn goals(plan: &Plan) -> String {
    let rewritten = median(plan, Group::Enter, "inline, constant number: rewritten", ATTACHED);
    let goals = [
        ("a rewritten call costs at most 30 ns", rewritten, rewritten.map(|ns| ns <= 30.0)),
        goal("NOP batch 32 at least 2 times the kernel's ring", ratio(plan, Group::Nop, "batch 32", KERNEL), 2.0),
        goal("writes at depth 1 at least 0.95 of pwrite", ratio(plan, Group::Write, "depth 1", PWRITE), 0.95),
        goal("fio at depth 1 at least 0.8 of psync", ratio(plan, Group::Fio, "depth 1", PSYNC), 0.8),
    ];
    let mut text = "\n".to_owned();
    for (what, value, is_met) in goals {
        if let (Some(value), Some(is_met)) = (value, is_met) {
            let _ = writeln!(text, "goal: {what}: {value:.2}, {}", if is_met { "met" } else { "not met" });
        }
    }
    text
}

fn goal(what: &str, value: Option<f64>, at_least: f64) -> (&str, Option<f64>, Option<bool>) {
    (what, value, value.map(|value| value >= at_least))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_in_the_middle() {
        let of = |values: &[f64]| summary(values).map(|s| (s.median, s.min, s.max));
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[3.0, 1.0, 2.0]), Some((2.0, 1.0, 3.0)));
        assert_eq!(of(&[4.0, 1.0]), Some((2.5, 1.0, 4.0)));
    }

    #[test]
    fn numbers_keep_three_digits() {
        assert_eq!([number(1.234), number(12.34), number(1234.5)], ["1.23", "12.3", "1234"]);
    }
}
