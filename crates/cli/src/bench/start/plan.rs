//! What is started, and how.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use super::super::job::{BenchJob, Jobs, TableCell};
use super::super::json;
use super::super::launch::Launch;
use super::super::tools::{Attachment, BenchTools};

/// Children of a process that is attached, and of one that is not.
pub(super) const CHILDREN: &str = "fork and exec";
/// Programs under `uringlet run`, and without it.
pub(super) const RUN: &str = "uringlet run";

pub(super) const ALONE: &str = "alone";
/// A child of an attached process.
pub(super) const ATTACHED: &str = "attached";
/// Findings are known from an earlier start.
pub(super) const CACHED: &str = "cached";
/// Objects are scanned, as at the first start.
pub(super) const SCANNED: &str = "scanned";

/// A program, the number of additional variables in its environment, and its command line.
const CHILD_PROGRAMS: [(&str, &str, &[&str]); 4] = [
    ("true", "0", &["/bin/true"]),
    ("true, 200 more variables", "200", &["/bin/true"]),
    ("sh", "0", &["/bin/sh", "-c", ":"]),
    ("python3", "0", &["/usr/bin/python3", "-c", "pass"]),
];
/// Programs that take a millisecond or some.
pub(super) const SMALL: [&str; 2] = ["ls", "python3"];
/// Programs with tens of megabytes of code of their own.
pub(super) const LARGE: [&str; 2] = ["node", "go"];
/// A program and its command line. The first word may be in any directory of these.
const RUN_PROGRAMS: [(&str, &[&str]); 5] = [
    ("ls", &["ls", "/"]),
    ("python3", &["python3", "-c", "pass"]),
    ("fio", &["fio", "--version"]),
    ("node", &["node", "-e", "0"]),
    ("go", &["go", "help"]),
];
const DIRECTORIES: [&str; 4] = ["/usr/bin", "/bin", "/usr/local/bin", "/usr/local/go/bin"];

/// Expected duration of one measurement.
const EXPECTED: Duration = Duration::from_millis(400);

/// `added` are programs that print their version.
pub(super) fn plan(tools: &BenchTools, added: &[String]) -> Jobs {
    let mut jobs = Jobs::default();
    for (row, variables, argv) in CHILD_PROGRAMS.into_iter().filter(|(_, _, argv)| Path::new(argv[0]).exists()) {
        for (column, attachment) in [(ALONE, Attachment::Plain), (ATTACHED, Attachment::Attached(&[]))] {
            let options = ["start", "--variables", variables, "--"];
            let launch = tools.worker(attachment, options.into_iter().chain(argv.iter().copied()));
            jobs.push(job(CHILDREN, row, column, launch));
        }
    }
    for (row, argv) in RUN_PROGRAMS {
        let found = DIRECTORIES.iter().map(|directory| format!("{directory}/{}", argv[0])).find(|path| Path::new(path).exists());
        if let Some(path) = found {
            push_run(&mut jobs, tools, row, std::iter::once(path.as_str()).chain(argv[1..].iter().copied()));
        }
    }
    for program in added {
        push_run(&mut jobs, tools, program, [program.as_str(), "--version"]);
    }
    jobs
}

/// Starts of one program by the worker, which is not attached itself.
fn push_run<'a>(jobs: &mut Jobs, tools: &BenchTools, row: &str, argv: impl IntoIterator<Item = &'a str>) {
    let argv: Vec<OsString> = argv.into_iter().map(OsString::from).collect();
    let ways = [(ALONE, Attachment::Plain), (CACHED, Attachment::Attached(&[])), (SCANNED, Attachment::Attached(&["--no-cache"]))];
    for (column, attachment) in ways {
        let started = tools.launch(attachment, argv.clone()).argv;
        let options = ["start", "--"].map(OsString::from);
        jobs.push(job(RUN, row, column, tools.worker(Attachment::Plain, options.into_iter().chain(started))));
    }
}

fn job(table: &str, row: &str, column: &str, launch: Launch) -> BenchJob {
    BenchJob::program(TableCell::new(table, row, column), EXPECTED, launch, json::sample)
}
