//! `uringlet bench start`: what it costs a process to be attached, from fork(2) to its end.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::host::HostInfo;
use super::job::{BenchJob, Jobs, TableCell, VALUE};
use super::json;
use super::outcome::BenchOutcome;
use super::output::{print, write_file};
use super::stop::StopFlag;
use super::summary::{Summary, number};
use super::table::TextTable;
use super::tools::{Attachment, BenchTools};

/// Starting programs that use no ring, from a process that uses none, attached and not
#[derive(Debug, clap::Args)]
pub(super) struct BenchStartArgs {
    /// Number of rounds; medians are shown
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// Write all numbers to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

const TABLE: &str = "fork and exec";
const COLUMNS: [(&str, Attachment); 2] = [("alone", Attachment::Plain), ("attached", Attachment::Attached(&[]))];
/// What is started, with this many more variables in its environment.
const PROGRAMS: [(&str, &str, &[&str]); 4] = [
    ("true", "0", &["/bin/true"]),
    ("true, 200 more variables", "200", &["/bin/true"]),
    ("sh", "0", &["/bin/sh", "-c", ":"]),
    ("python3", "0", &["/usr/bin/python3", "-c", "pass"]),
];
/// Expected duration of one process.
const EXPECTED: Duration = Duration::from_millis(400);

pub(super) fn run(args: &BenchStartArgs) -> Result<BenchOutcome, String> {
    let tools = BenchTools::find()?;
    let stop = StopFlag::on_signals()?;
    let host = HostInfo::detect(Path::new("."));
    let mut jobs = plan(&tools);
    print(&format!("{host}\n"));
    let outcome = jobs.run_rounds(args.rounds, &stop, || Ok(()))?;
    print(&(table(&jobs) + &jobs.failures()));
    if let Some(path) = &args.json {
        let notes = ["fork, execve and the whole life of the program; parent and child are attached".to_owned()];
        write_file(path, &json::document(&host, args.rounds, &notes, &jobs, &[]))?;
    }
    Ok(outcome)
}

fn plan(tools: &BenchTools) -> Jobs {
    let mut jobs = Jobs::default();
    for (row, variables, argv) in PROGRAMS.into_iter().filter(|(_, _, argv)| Path::new(argv[0]).exists()) {
        for (column, attachment) in COLUMNS {
            let options = ["start", "--variables", variables, "--"];
            let launch = tools.worker(attachment, options.into_iter().chain(argv.iter().copied()));
            jobs.push(BenchJob::program(TableCell::new(TABLE, row, column), EXPECTED, launch, json::sample));
        }
    }
    jobs
}

fn table(jobs: &Jobs) -> String {
    let title = "fork, exec and end: \u{b5}s, median (min - max); the fastest run of all";
    let mut table = TextTable::new(title, ["", "alone", "attached", "more", "fastest alone", "attached", "more"]);
    for row in jobs.rows(TABLE) {
        let of = |field| COLUMNS.map(|(column, _)| jobs.summary(TABLE, row, column, field));
        let medians = of(VALUE);
        let [alone, attached] = medians.map(|summary| summary.map_or_else(|| "-".to_owned(), Summary::wide));
        let fastest = of("min").map(|summary| summary.map(|summary| summary.min));
        let [fast_alone, fast_attached] = fastest.map(or_dash);
        let more = |[alone, attached]: [Option<f64>; 2]| or_dash(alone.zip(attached).map(|(alone, attached)| attached - alone));
        let medians = medians.map(|summary| summary.map(|summary| summary.median));
        table.row([row.to_owned(), alone, attached, more(medians), fast_alone, fast_attached, more(fastest)]);
    }
    table.text()
}

fn or_dash(microseconds: Option<f64>) -> String {
    microseconds.map_or_else(|| "-".to_owned(), number)
}
