//! Measurements that are repeated in rounds, so that disturbances affect all of them alike.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::launch::Launch;
use super::outcome::BenchOutcome;
use super::progress::Progress;
use super::stop::StopFlag;
use super::summary::Summary;

/// The numbers of one measurement by name. `VALUE` is the main one.
pub(super) type Sample = BTreeMap<String, f64>;

pub(super) const VALUE: &str = "value";

/// The table cell that a number belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TableCell {
    pub(super) table: String,
    pub(super) row: String,
    pub(super) column: String,
}

impl TableCell {
    pub(super) fn new(table: impl Into<String>, row: impl Into<String>, column: impl Into<String>) -> Self {
        Self { table: table.into(), row: row.into(), column: column.into() }
    }
}

impl fmt::Display for TableCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, {}", self.table, self.row, self.column)
    }
}

/// Parses the output of a program.
pub(super) type ParseOutput = fn(&str) -> Result<Sample, String>;

type Measure = Box<dyn FnMut(&StopFlag) -> Result<Sample, String>>;

/// The measurements for one table cell.
pub(super) struct BenchJob {
    pub(super) cell: TableCell,
    /// Estimated duration of one measurement.
    expected_time: Duration,
    measure: Measure,
    pub(super) samples: Vec<Sample>,
    pub(super) failure: Option<String>,
}

impl fmt::Debug for BenchJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BenchJob")
            .field("cell", &self.cell)
            .field("samples", &self.samples)
            .field("failure", &self.failure)
            .finish_non_exhaustive()
    }
}

impl BenchJob {
    pub(super) fn new(
        cell: TableCell,
        expected_time: Duration,
        measure: impl FnMut(&StopFlag) -> Result<Sample, String> + 'static,
    ) -> Self {
        Self { cell, expected_time, measure: Box::new(measure), samples: Vec::new(), failure: None }
    }

    /// A measurement that runs a program and parses its output.
    pub(super) fn program(cell: TableCell, expected_time: Duration, launch: Launch, read: ParseOutput) -> Self {
        Self::new(cell, expected_time, move |stop| read(&launch.output(stop)?))
    }

    /// Measures once more, unless it has failed before.
    fn run(&mut self, stop: &StopFlag) {
        if self.failure.is_none() {
            let sample = (self.measure)(stop);
            match sample {
                Ok(sample) => self.samples.push(sample),
                Err(_) if stop.is_requested() => {}
                Err(why) => self.failure = Some(why),
            }
        }
    }

    pub(super) fn summary(&self, field: &str) -> Option<Summary> {
        let values: Vec<f64> = self.samples.iter().filter_map(|sample| sample.get(field).copied()).collect();
        Summary::of(&values)
    }

    pub(super) fn json(&self) -> Value {
        let fields: std::collections::BTreeSet<&String> = self.samples.iter().flat_map(BTreeMap::keys).collect();
        let mut measured = Map::new();
        for field in fields {
            let values: Vec<f64> = self.samples.iter().filter_map(|sample| sample.get(field).copied()).collect();
            if let Some(s) = Summary::of(&values) {
                measured.insert(field.clone(), json!({ "values": values, "median": s.median, "min": s.min, "max": s.max }));
            }
        }
        json!({
            "table": self.cell.table, "row": self.cell.row, "column": self.cell.column,
            "measured": measured, "failure": self.failure,
        })
    }
}

/// All jobs of a benchmark.
#[derive(Debug, Default)]
pub(super) struct Jobs(pub(super) Vec<BenchJob>);

impl Jobs {
    pub(super) fn push(&mut self, job: BenchJob) {
        self.0.push(job);
    }

    /// Runs all jobs `rounds` times and calls `after` behind each.
    pub(super) fn run_rounds(
        &mut self,
        rounds: u32,
        stop: &StopFlag,
        mut after: impl FnMut() -> Result<(), String>,
    ) -> Result<BenchOutcome, String> {
        let mut progress = Progress::new(self.expected_time() * rounds);
        for round in 1..=rounds {
            for job in &mut self.0 {
                if stop.is_requested() {
                    progress.clear();
                    return Ok(BenchOutcome::Interrupted);
                }
                progress.show(&format!("round {round} of {rounds}: {}", job.cell));
                job.run(stop);
                progress.add(job.expected_time);
                after()?;
            }
        }
        progress.clear();
        Ok(if stop.is_requested() { BenchOutcome::Interrupted } else { BenchOutcome::Complete })
    }

    /// Estimated duration of one round.
    pub(super) fn expected_time(&self) -> Duration {
        self.0.iter().map(|job| job.expected_time).sum()
    }

    pub(super) fn find_job(&self, table: &str, row: &str, column: &str) -> Option<&BenchJob> {
        self.0.iter().find(|job| job.cell.table == table && job.cell.row == row && job.cell.column == column)
    }

    pub(super) fn summary(&self, table: &str, row: &str, column: &str, field: &str) -> Option<Summary> {
        self.find_job(table, row, column)?.summary(field)
    }

    /// The quotient of two columns' medians.
    pub(super) fn ratio(&self, table: &str, row: &str, column: &str, base: &str) -> Option<f64> {
        let median = |column| self.summary(table, row, column, VALUE).map(|s| s.median);
        Some(median(column)? / median(base)?)
    }

    /// The rows of a table in the order of their first job.
    pub(super) fn rows(&self, table: &str) -> Vec<&str> {
        let mut rows: Vec<&str> = Vec::new();
        for job in self.0.iter().filter(|job| job.cell.table == table) {
            if !rows.contains(&job.cell.row.as_str()) {
                rows.push(&job.cell.row);
            }
        }
        rows
    }

    /// One line for each failed job.
    pub(super) fn failures(&self) -> String {
        let line = |job: &BenchJob| job.failure.as_ref().map(|why| format!("{}: failed: {why}\n", job.cell));
        self.0.iter().filter_map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(column: &str, value: f64) -> BenchJob {
        BenchJob::new(TableCell::new("t", "r", column), Duration::ZERO, move |_| Ok(Sample::from([(VALUE.to_owned(), value)])))
    }

    #[test]
    fn rounds_are_interleaved_and_compared() {
        let mut jobs = Jobs(vec![
            job("a", 4.0),
            job("b", 2.0),
            BenchJob::new(TableCell::new("t", "s", "a"), Duration::ZERO, |_| Err("no".to_owned())),
        ]);
        let mut steps = 0;
        let outcome = jobs.run_rounds(3, &StopFlag::default(), || {
            steps += 1;
            Ok(())
        });
        assert_eq!((outcome, steps), (Ok(BenchOutcome::Complete), 9));
        assert_eq!(jobs.ratio("t", "r", "a", "b"), Some(2.0));
        assert_eq!(jobs.ratio("t", "s", "a", "b"), None);
        assert_eq!(jobs.rows("t"), ["r", "s"]);
        assert_eq!(jobs.failures(), "t, s, a: failed: no\n");
        assert_eq!(jobs.0[0].json()["measured"][VALUE]["values"], json!([4.0, 4.0, 4.0]));
    }
}
