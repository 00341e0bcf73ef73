//! Tables for people, and whether the goals are met.

use super::plan::{ATTACHED, Group, KERNEL, PSYNC, PWRITE, Plan};
use crate::bench::goal::{Bound, Goal};
use crate::bench::job::{Jobs, VALUE};
use crate::bench::plot::{Panel, Plot};
use crate::bench::table::Table;

/// What the last column of a table divides.
fn ratio_of(group: Group) -> Option<&'static str> {
    match group {
        Group::Enter => None,
        Group::Nop => Some(KERNEL),
        Group::Write => Some(PWRITE),
        Group::Fio => Some(PSYNC),
    }
}

/// All tables: medians, with the least and the most; the goals; what was not measured.
pub(super) fn text(plan: &Plan, goals: &[Goal]) -> String {
    let mut text: String = Group::ALL.into_iter().filter_map(|group| table(&plan.jobs, group)).collect();
    text.push('\n');
    text.extend(goals.iter().map(Goal::text));
    text.extend(plan.notes.iter().map(|note| format!("{note}\n")));
    text + &plan.jobs.failures()
}

fn table(jobs: &Jobs, group: Group) -> Option<String> {
    let rows = jobs.rows(group.title());
    let base = ratio_of(group);
    let header = std::iter::once(String::new()).chain(group.columns().iter().map(ToString::to_string));
    let mut table =
        Table::new(format!("{}: median (least - most)", group.title()), header.chain(base.map(|base| format!("{ATTACHED} / {base}"))));
    for row in &rows {
        let cell = |column: &&str| {
            let summary = jobs.summary(group.title(), row, column, VALUE);
            summary.map_or_else(|| "-".to_owned(), |s| s.divided(group.unit()).wide())
        };
        let ratio = base.and_then(|base| jobs.ratio(group.title(), row, ATTACHED, base));
        let cells = std::iter::once((*row).to_owned()).chain(group.columns().iter().map(cell));
        table.row(cells.chain(ratio.map(|ratio| format!("{ratio:.2}"))));
    }
    (!rows.is_empty()).then(|| table.text())
}

pub(super) fn goals(jobs: &Jobs) -> Vec<Goal> {
    let rewritten = jobs.summary(Group::Enter.title(), "inline, constant number: rewritten", ATTACHED, VALUE);
    let ratio = |group: Group, row, base| jobs.ratio(group.title(), row, ATTACHED, base);
    let goals = [
        Goal::new("ns for a rewritten call", Bound::AtMost, 30.0, rewritten.map(|s| s.median)),
        Goal::new("NOP batch 32, of the kernel's ring", Bound::AtLeast, 2.0, ratio(Group::Nop, "batch 32", KERNEL)),
        Goal::new("writes at depth 1, of pwrite", Bound::AtLeast, 0.95, ratio(Group::Write, "depth 1", PWRITE)),
        Goal::new("fio at depth 1, of psync", Bound::AtLeast, 0.8, ratio(Group::Fio, "depth 1", PSYNC)),
    ];
    goals.into_iter().flatten().collect()
}

/// Rates by batch and by depth: whatever a row's name ends with.
pub(super) fn plot(jobs: &Jobs) -> Plot {
    let line = |group: Group, column: &str| {
        let rows = jobs.rows(group.title());
        let point = |row: &&str| Some((row.rsplit(' ').next()?.parse().ok()?, jobs.summary(group.title(), row, column, VALUE)?));
        (column.to_owned(), rows.iter().filter_map(point).collect())
    };
    let panel = |group: Group| Panel {
        title: group.title().split(',').next().unwrap_or_default().to_owned(),
        lines: group.columns().iter().map(|column| line(group, column)).collect(),
    };
    let panels = [Group::Nop, Group::Write, Group::Fio].into_iter().filter(|group| !jobs.rows(group.title()).is_empty());
    Plot { x_label: "batch, depth".to_owned(), y_label: "a second".to_owned(), panels: panels.map(panel).collect() }
}
