//! Tables, plots and goals of `uringlet bench ublk`.

use super::plan::{COPIES, COPY, DEEP, DEPTHS, GET_DATA, IN_PROCESS, OFF, ON, OPS, PATHS, UblkPlan, row};
use super::servers::{NBD_BROKER, NBD_EMBEDDED, NBDKIT};
use crate::bench::goal::{Bound, Goal};
use crate::bench::job::VALUE;
use crate::bench::plot::{Panel, Plot};
use crate::bench::summary::{Summary, number};
use crate::bench::table::TextTable;

const NOTHING: &str = "-";
/// Mean latency of a request, µs.
const MEAN: &str = "mean_us";
/// Smallest copy for which NEED_GET_DATA should win, KiB.
const WORTH_KIB: u32 = 64;

impl UblkPlan {
    /// All tables, the goals, the notes and the failures.
    pub(super) fn text(&self, goals: &[Goal]) -> String {
        let mut text = self.get_data() + &self.copies() + &self.paths();
        text.push('\n');
        text.extend(goals.iter().map(Goal::text));
        text.extend(self.notes.iter().map(|note| format!("{note}\n")));
        text + &self.jobs.failures()
    }

    fn cell(&self, table: &str, row: &str, column: &str, field: &str, unit: f64) -> String {
        self.jobs.summary(table, row, column, field).map_or_else(|| NOTHING.to_owned(), |s| s.divided(unit).narrow())
    }

    /// `column` divided by `base`: the median of the ratios of each round, since values of one
    /// round were measured one after the other.
    fn ratio(&self, table: &str, row: &str, field: &str, column: &str, base: &str) -> Option<f64> {
        let samples = |column| self.jobs.find_job(table, row, column).map(|job| &job.samples);
        let pairs = samples(column)?.iter().zip(samples(base)?);
        let ratios: Vec<f64> = pairs.filter_map(|(one, other)| Some(one.get(field)? / other.get(field)?)).collect();
        Summary::of(&ratios).map(|s| s.median)
    }

    fn compared(&self, table: &str, row: &str, field: &str, column: &str, base: &str) -> String {
        self.ratio(table, row, field, column, base).map_or_else(|| NOTHING.to_owned(), number)
    }

    fn get_data(&self) -> String {
        let rows = self.jobs.rows(GET_DATA);
        if rows.is_empty() {
            return String::new();
        }
        let title = format!("{GET_DATA}: latency in µs, thousand requests/s, median ± half the spread");
        let header = ["", "off, µs", "NEED_GET_DATA, µs", "of off's", "off, k/s", "NEED_GET_DATA, k/s", "of off's"];
        let mut table = TextTable::new(title, header);
        for row in rows {
            let cell = |column, field, unit| self.cell(GET_DATA, row, column, field, unit);
            let compared = |field| self.compared(GET_DATA, row, field, ON, OFF);
            table.row([
                row.to_owned(),
                cell(OFF, MEAN, 1.0),
                cell(ON, MEAN, 1.0),
                compared(MEAN),
                cell(OFF, VALUE, 1e3),
                cell(ON, VALUE, 1e3),
                compared(VALUE),
            ]);
        }
        table.text()
    }

    fn copies(&self) -> String {
        let rows = self.jobs.rows(COPIES);
        if rows.is_empty() {
            return String::new();
        }
        let title = format!("{COPIES}: latency in µs, median ± half the spread");
        let mut table = TextTable::new(title, ["", COPY, ON, "the copy's, of NEED_GET_DATA's"]);
        for row in rows {
            let cell = |column| self.cell(COPIES, row, column, MEAN, 1.0);
            table.row([row.to_owned(), cell(COPY), cell(ON), self.compared(COPIES, row, MEAN, COPY, ON)]);
        }
        table.text()
    }

    fn paths(&self) -> String {
        if self.paths.is_empty() {
            return String::new();
        }
        let title = format!("{PATHS}: thousand requests/s, median ± half the spread");
        let mut table = TextTable::new(title, std::iter::once("").chain(self.paths.iter().copied()));
        for row in self.jobs.rows(PATHS) {
            let cells = self.paths.iter().map(|column| self.cell(PATHS, row, column, VALUE, 1e3));
            table.row(std::iter::once(row.to_owned()).chain(cells));
        }
        table.text()
    }

    pub(super) fn goals(&self) -> Vec<Goal> {
        use Bound::{AtLeast, AtMost};
        let nbd = |column, depth| {
            let ratios = OPS.iter().filter_map(|op| Some((row(op, depth), self.ratio(PATHS, &row(op, depth), VALUE, column, NBDKIT)?)));
            Goal::worst(format!("{column}, depth {depth}, requests, relative to nbdkit"), AtLeast, 1.0, ratios)
        };
        let fast = OPS.iter().filter_map(|op| Some((row(op, 32), self.jobs.summary(PATHS, &row(op, 32), IN_PROCESS, VALUE)?.median)));
        let large = self.sizes.iter().filter(|&&kib| kib >= WORTH_KIB).filter_map(|kib| {
            let row = format!("{kib} KiB");
            let ratio = self.ratio(COPIES, &row, MEAN, COPY, ON)?;
            Some((row, ratio))
        });
        let deep = self.jobs.rows(GET_DATA).into_iter().filter(|row| row.ends_with(DEEP)).filter_map(|row| {
            let ratio = self.ratio(GET_DATA, row, MEAN, ON, OFF)?;
            Some((row.to_owned(), ratio))
        });
        let goals = [
            Goal::worst(format!("NEED_GET_DATA, {DEEP}, latency, relative to the plain path"), AtMost, 1.1, deep),
            Goal::worst("one more copy of 64 KiB and more, latency, relative to NEED_GET_DATA", AtLeast, 1.0, large),
            Goal::worst("in one process, depth 32, requests/s", AtLeast, 1e6, fast),
            nbd(NBD_EMBEDDED, DEPTHS[0]),
            nbd(NBD_EMBEDDED, DEPTHS[1]),
            nbd(NBD_BROKER, DEPTHS[0]),
            nbd(NBD_BROKER, DEPTHS[1]),
        ];
        goals.into_iter().flatten().collect()
    }

    /// Latency by size; requests per second by depth, for each path.
    pub(super) fn plot(&self) -> Plot {
        let sizes = self.sizes.iter();
        let point = |kib: &u32, column: &str| Some((f64::from(*kib), self.jobs.summary(COPIES, &format!("{kib} KiB"), column, MEAN)?));
        let line = |column: &str| (column.to_owned(), sizes.clone().filter_map(|kib| point(kib, column)).collect());
        let copies = Panel { title: "µs of a random write, by KiB".to_owned(), lines: vec![line(COPY), line(ON)] };
        let paths = OPS.map(|op| Panel { title: format!("{op}s/s of a null device, by depth"), lines: self.lines(op) });
        let panels = std::iter::once(copies).chain(paths).filter(|panel| panel.lines.iter().any(|(_, points)| !points.is_empty()));
        Plot { x_label: "KiB or depth".to_owned(), y_label: "µs or requests/s".to_owned(), panels: panels.collect() }
    }

    fn lines(&self, op: &str) -> Vec<(String, Vec<(f64, Summary)>)> {
        let point = |depth: u32, column: &str| Some((f64::from(depth), self.jobs.summary(PATHS, &row(op, depth), column, VALUE)?));
        let line = |column: &&str| ((*column).to_owned(), DEPTHS.iter().filter_map(|&depth| point(depth, column)).collect());
        self.paths.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::job::{BenchJob, Sample};
    use crate::bench::outcome::BenchOutcome;
    use crate::bench::stop::StopFlag;
    use crate::bench::ublk::args::tests::parse;
    use crate::bench::ublk::plan::{plan, tests::tools};
    use crate::bench::ublk::servers::tests::servers;
    use std::time::Duration;

    /// A complete run: NEED_GET_DATA is 5% slower than the plain path, and 10% faster than a copy.
    fn measured(args: &[&str]) -> UblkPlan {
        let mut plan = plan(&parse(args).unwrap(), &tools(None), &servers());
        for job in &mut plan.jobs.0 {
            let value = match job.cell.column.as_str() {
                IN_PROCESS => 2e6,
                OFF => 105e3,
                COPY => 90e3,
                NBDKIT => 110e3,
                _ => 100e3,
            };
            *job = BenchJob::new(job.cell.clone(), Duration::ZERO, move |_| {
                Ok(Sample::from([(VALUE.to_owned(), value), (MEAN.to_owned(), 1e6 / value)]))
            });
        }
        assert_eq!(plan.jobs.run_rounds(1, &StopFlag::default(), || Ok(())), Ok(BenchOutcome::Complete));
        plan
    }

    #[test]
    fn goals_are_reported_as_met_or_not_met() {
        let goals: Vec<String> = measured(&[]).goals().iter().map(Goal::text).collect();
        assert_eq!(goals.len(), 7);
        assert!(goals[0].contains("at most 1.10: 1.05") && goals[0].ends_with(", met\n"), "{}", goals[0]);
        assert!(goals[1].contains("at least 1.00: 1.11 (64 KiB), met"), "{}", goals[1]);
        assert!(goals[2].contains("2000000 (read, depth 32), met"), "{}", goals[2]);
        assert!(goals[6].contains("depth 32") && goals[6].contains("0.91") && goals[6].contains("not met"), "{}", goals[6]);
        assert_eq!(measured(&["--parts=copies", "--sizes=4"]).goals().len(), 0);
    }

    #[test]
    fn tables_and_plots_contain_all_series() {
        let plan = measured(&["--sizes=4,1024"]);
        let text = plan.text(&[]);
        let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("no {start} in {text}"));
        let cells = |start: &str| line(start).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(cells("randwrite, depth 64")[5..], ["9.52", "10.0", "1.05", "105", "100", "0.95"]);
        assert_eq!(cells("1024 KiB")[2..], ["11.1", "10.0", "1.11"]);
        assert_eq!(cells("write, depth 32")[3..], ["2000", "100", "100", "100", "110"]);
        let svg = plan.plot().svg().unwrap();
        assert!(["reads/s", "writes/s", "one more copy", "block device"].iter().all(|words| svg.contains(words)), "{svg}");
        let only = measured(&["--parts=get-data"]).text(&[]);
        assert!(!only.contains(PATHS) && !only.contains(COPIES), "{only}");
    }
}
