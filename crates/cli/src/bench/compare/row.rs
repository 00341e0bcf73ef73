//! One row: what the worker measures, and in which ways.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use super::super::job::{BenchJob, TableCell};
use super::super::json;
use super::super::tools::{Attachment, BenchTools};

pub(super) const PLAIN: &str = "calls";
pub(super) const KERNEL: &str = "kernel's ring";
pub(super) const ATTACHED: &str = "uringlet run";
pub(super) const COLUMNS: [&str; 3] = [PLAIN, KERNEL, ATTACHED];

/// What the worker's number is shown in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Unit {
    pub(super) name: &'static str,
    /// The worker's number of such a unit.
    pub(super) size: f64,
}

pub(super) const NS: Unit = Unit { name: "ns", size: 1.0 };
pub(super) const US: Unit = Unit { name: "µs", size: 1000.0 };
pub(super) const MB: Unit = Unit { name: "MB", size: 1e6 };
pub(super) const NUMBER: Unit = Unit { name: "", size: 1.0 };

/// How much the engine may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Limit {
    /// So many times another column's value.
    Times(&'static str, f64),
    /// So many units more than another column's value.
    Over(&'static str, f64),
}

/// See the module. Small values are good.
#[derive(Clone, Debug)]
pub(super) struct BenchRow {
    pub(super) table: &'static str,
    pub(super) name: &'static str,
    pub(super) unit: Unit,
    pub(super) limits: Vec<Limit>,
    words: Vec<&'static str>,
    /// The worker's name for the way without a ring, if there is one.
    plain: Option<&'static str>,
    needs: Needs,
}

/// What the worker is told besides its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    Nothing,
    Directory,
    File,
}

/// Where and how long is measured.
pub(super) struct RowPlace<'a> {
    pub(super) seconds: f64,
    pub(super) directory: &'a Path,
    pub(super) file: &'a Path,
}

/// Starting the worker and preparing its files, beside the time of a measurement.
const START: Duration = Duration::from_millis(60);

impl BenchRow {
    pub(super) fn new(table: &'static str, name: &'static str, unit: Unit, words: &[&'static str]) -> Self {
        Self { table, name, unit, limits: Vec::new(), words: words.to_vec(), plain: None, needs: Needs::Nothing }
    }

    /// The worker can do it without a ring, too, which it calls so.
    pub(super) fn plain(self, via: &'static str) -> Self {
        Self { plain: Some(via), ..self }
    }

    pub(super) fn in_directory(self) -> Self {
        Self { needs: Needs::Directory, ..self }
    }

    pub(super) fn on_file(self) -> Self {
        Self { needs: Needs::File, ..self }
    }

    pub(super) fn goal(mut self, limit: Limit) -> Self {
        self.limits.push(limit);
        self
    }

    pub(super) fn jobs(&self, tools: &BenchTools, place: &RowPlace<'_>) -> Vec<BenchJob> {
        let plain = self.plain.map(|via| (PLAIN, via, Attachment::Plain));
        let kernel = tools.no_kernel.is_none().then_some((KERNEL, "ring", Attachment::Plain));
        let ways = plain.into_iter().chain(kernel).chain([(ATTACHED, "ring", Attachment::Attached(&[]))]);
        let job = |(column, via, attachment)| {
            let expected = Duration::from_secs_f64(place.seconds) + START;
            BenchJob::program(
                TableCell::new(self.table, self.name, column),
                expected,
                tools.worker(attachment, self.argv(via, place)),
                json::sample,
            )
        };
        ways.map(job).collect()
    }

    fn argv(&self, via: &str, place: &RowPlace<'_>) -> Vec<OsString> {
        let mut argv: Vec<OsString> = self.words.iter().map(OsString::from).collect();
        argv.extend(["--via".into(), via.into(), "--seconds".into(), place.seconds.to_string().into()]);
        match self.needs {
            Needs::Nothing => {}
            Needs::Directory => argv.extend(["--directory".into(), place.directory.into()]),
            Needs::File => argv.extend(["--file".into(), place.file.into()]),
        }
        argv
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_has_its_command() {
        let tools = BenchTools { uringlet: "/b/u".into(), worker: "/b/w".into(), drop_in: None, no_kernel: None };
        let place = RowPlace { seconds: 0.5, directory: Path::new("/d"), file: Path::new("/d/f") };
        let row = BenchRow::new("t", "r", NS, &["read", "--depth", "1"]).on_file();
        assert_eq!(row.jobs(&tools, &place).len(), 2);
        let row = row.plain("pread");
        assert_eq!(row.jobs(&tools, &place).len(), 3);
        assert_eq!(row.argv("pread", &place), ["read", "--depth", "1", "--via", "pread", "--seconds", "0.5", "--file", "/d/f"]);
        let no_kernel = BenchTools { no_kernel: Some("blocked".into()), ..tools };
        assert_eq!(row.jobs(&no_kernel, &place).len(), 2);
    }
}
