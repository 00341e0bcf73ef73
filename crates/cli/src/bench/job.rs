//! What is measured again and again, all of it once a round, so that what else the machine does hurts all alike.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::child::Launch;
use super::progress::Progress;
use super::stats::Summary;
use super::stop::Stop;

/// What one measurement gives: numbers by name. `VALUE` is the one that matters.
pub(super) type Sample = BTreeMap<String, f64>;

pub(super) const VALUE: &str = "value";

/// Where a number belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) table: String,
    pub(super) row: String,
    pub(super) column: String,
}

impl Place {
    pub(super) fn new(table: impl Into<String>, row: impl Into<String>, column: impl Into<String>) -> Self {
        Self { table: table.into(), row: row.into(), column: column.into() }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, {}", self.table, self.row, self.column)
    }
}

/// Makes numbers of what a program prints.
pub(super) type Read = fn(&str) -> Result<Sample, String>;

type Measure = Box<dyn FnMut(&Stop) -> Result<Sample, String>>;

/// One place's measurements.
pub(super) struct Job {
    pub(super) place: Place,
    /// About how long one takes.
    expected: Duration,
    measure: Measure,
    pub(super) samples: Vec<Sample>,
    pub(super) failure: Option<String>,
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("place", &self.place)
            .field("samples", &self.samples)
            .field("failure", &self.failure)
            .finish_non_exhaustive()
    }
}

impl Job {
    pub(super) fn new(place: Place, expected: Duration, measure: impl FnMut(&Stop) -> Result<Sample, String> + 'static) -> Self {
        Self { place, expected, measure: Box::new(measure), samples: Vec::new(), failure: None }
    }

    /// Runs a program and reads what it prints.
    pub(super) fn program(place: Place, expected: Duration, launch: Launch, read: Read) -> Self {
        Self::new(place, expected, move |stop| read(&launch.output(stop)?))
    }

    /// Once more; not after a failure.
    fn run(&mut self, stop: &Stop) {
        if self.failure.is_none() {
            let sample = (self.measure)(stop);
            match sample {
                Ok(sample) => self.samples.push(sample),
                Err(_) if stop.is_wanted() => {}
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
            "table": self.place.table, "row": self.place.row, "column": self.place.column,
            "measured": measured, "failure": self.failure,
        })
    }
}

/// All that is measured in a run.
#[derive(Debug, Default)]
pub(super) struct Jobs(pub(super) Vec<Job>);

impl Jobs {
    pub(super) fn push(&mut self, job: Job) {
        self.0.push(job);
    }

    /// All jobs, one after the other, so many times. `after` tidies up behind each. False if it was stopped.
    pub(super) fn rounds(&mut self, rounds: u32, stop: &Stop, mut after: impl FnMut() -> Result<(), String>) -> Result<bool, String> {
        let mut progress = Progress::new(self.expected() * rounds);
        for round in 1..=rounds {
            for job in &mut self.0 {
                if stop.is_wanted() {
                    progress.clear();
                    return Ok(false);
                }
                progress.show(&format!("round {round} of {rounds}: {}", job.place));
                job.run(stop);
                progress.add(job.expected);
                after()?;
            }
        }
        progress.clear();
        Ok(!stop.is_wanted())
    }

    /// About how long a round takes.
    pub(super) fn expected(&self) -> Duration {
        self.0.iter().map(|job| job.expected).sum()
    }

    pub(super) fn find(&self, table: &str, row: &str, column: &str) -> Option<&Job> {
        self.0.iter().find(|job| job.place.table == table && job.place.row == row && job.place.column == column)
    }

    pub(super) fn summary(&self, table: &str, row: &str, column: &str, field: &str) -> Option<Summary> {
        self.find(table, row, column)?.summary(field)
    }

    /// How many times `base` a column's median is.
    pub(super) fn ratio(&self, table: &str, row: &str, column: &str, base: &str) -> Option<f64> {
        let median = |column| self.summary(table, row, column, VALUE).map(|s| s.median);
        Some(median(column)? / median(base)?)
    }

    /// The rows of a table, in the order in which they came.
    pub(super) fn rows(&self, table: &str) -> Vec<&str> {
        let mut rows: Vec<&str> = Vec::new();
        for job in self.0.iter().filter(|job| job.place.table == table) {
            if !rows.contains(&job.place.row.as_str()) {
                rows.push(&job.place.row);
            }
        }
        rows
    }

    /// A line for each that failed.
    pub(super) fn failures(&self) -> String {
        let line = |job: &Job| job.failure.as_ref().map(|why| format!("{}: failed: {why}\n", job.place));
        self.0.iter().filter_map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(column: &str, value: f64) -> Job {
        Job::new(Place::new("t", "r", column), Duration::ZERO, move |_| Ok(Sample::from([(VALUE.to_owned(), value)])))
    }

    #[test]
    fn rounds_are_interleaved_and_compared() {
        let mut jobs =
            Jobs(vec![job("a", 4.0), job("b", 2.0), Job::new(Place::new("t", "s", "a"), Duration::ZERO, |_| Err("no".to_owned()))]);
        let mut steps = 0;
        let is_whole = jobs.rounds(3, &Stop::default(), || {
            steps += 1;
            Ok(())
        });
        assert_eq!((is_whole, steps), (Ok(true), 9));
        assert_eq!(jobs.ratio("t", "r", "a", "b"), Some(2.0));
        assert_eq!(jobs.ratio("t", "s", "a", "b"), None);
        assert_eq!(jobs.rows("t"), ["r", "s"]);
        assert_eq!(jobs.failures(), "t, s, a: failed: no\n");
        assert_eq!(jobs.0[0].json()["measured"][VALUE]["values"], json!([4.0, 4.0, 4.0]));
    }
}
