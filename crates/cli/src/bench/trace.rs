//! `uringlet bench trace`: what a tracer costs the program, a request.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::goal::{Bound, Goal};
use super::host::{BackgroundLoad, HostInfo};
use super::job::{BenchJob, Jobs, TableCell, VALUE};
use super::json;
use super::outcome::BenchOutcome;
use super::output::{print, remove_if_there, write_file};
use super::stop::StopFlag;
use super::summary::number;
use super::table::TextTable;
use super::tools::{Attachment, BenchTools};

/// Requests without and with a tracer
#[derive(Debug, clap::Args)]
pub(super) struct BenchTraceArgs {
    /// Number of rounds; medians are shown
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// Directory for the test file
    #[arg(long, value_name = "DIR", default_value = ".")]
    directory: PathBuf,

    /// Write all numbers to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

const TABLE: &str = "trace";
const UNTRACED: &str = "untraced";
/// The program waits while the buffer is full.
const LOSSLESS: &str = "traced";
/// It does not, and a part is dropped if the tracer is slower.
const DROPPING: &str = "traced, --drop";
const EXPECTED: Duration = Duration::from_secs(3);

pub(super) fn run(args: &BenchTraceArgs) -> Result<BenchOutcome, String> {
    let tools = BenchTools::find()?;
    let stop = StopFlag::on_signals()?;
    let host = HostInfo::detect(&args.directory);
    let file = args.directory.join(format!("uringlet-bench-{}", std::process::id()));
    let mut jobs = plan(&tools, &file);
    print(&format!("{host}\n"));
    let background = BackgroundLoad::begin();
    let measured = jobs.run_rounds(args.rounds, &stop, || remove_if_there(&file));
    let _ = std::fs::remove_file(&file);
    let outcome = measured?;
    let goals = goals(&jobs);
    let notes: Vec<String> = background.warning().into_iter().collect();
    print(&text(&jobs, &goals, &notes));
    if let Some(path) = &args.json {
        write_file(path, &json::document(&host, args.rounds, &notes, &jobs, &goals))?;
    }
    Ok(outcome)
}

fn plan(tools: &BenchTools, file: &Path) -> Jobs {
    let file = file.to_string_lossy().into_owned();
    let write = |depth: &str| ["write", "--via", "ring", "--file", &file, "--depth", depth, "--seconds", "1"].map(str::to_owned).to_vec();
    let nop = |batch: &str| ["nop", "--batch", batch].map(str::to_owned).to_vec();
    let programs =
        [("NOP, 1 at a time", nop("1")), ("NOP, 16", nop("16")), ("write 1 KiB, 1", write("1")), ("write 1 KiB, 16", write("16"))];
    let mut jobs = Jobs::default();
    for (row, argv) in programs {
        for (column, options) in [(UNTRACED, None), (LOSSLESS, Some(&[][..])), (DROPPING, Some(&["--drop"][..]))] {
            let launch = match options {
                None => tools.worker(Attachment::Attached(&[]), argv.iter().map(OsString::from)),
                Some(options) => {
                    let worker = tools.worker(Attachment::Plain, argv.iter().map(OsString::from)).argv;
                    let trace = ["trace", "-c", "-o", "/dev/null"].iter().chain(options).chain(&["--"]).map(OsString::from);
                    let argv: Vec<OsString> = std::iter::once(tools.uringlet.clone().into()).chain(trace).chain(worker).collect();
                    tools.launch(Attachment::Plain, argv)
                }
            };
            jobs.push(BenchJob::program(TableCell::new(TABLE, row, column), EXPECTED, launch, json::sample));
        }
    }
    jobs
}

/// A request, ns.
fn request_ns(jobs: &Jobs, row: &str, column: &str) -> Option<f64> {
    jobs.summary(TABLE, row, column, VALUE).map(|summary| 1e9 / summary.median)
}

fn more_ns(jobs: &Jobs, row: &str, column: &str) -> Option<f64> {
    Some(request_ns(jobs, row, column)? - request_ns(jobs, row, UNTRACED)?)
}

fn goals(jobs: &Jobs) -> Vec<Goal> {
    let more = jobs.rows(TABLE).into_iter().filter_map(|row| Some((row.to_owned(), more_ns(jobs, row, DROPPING)?))).collect::<Vec<_>>();
    Goal::worst("ns more a request that does not wait for the tracer", Bound::AtMost, 150.0, more).into_iter().collect()
}

fn text(jobs: &Jobs, goals: &[Goal], notes: &[String]) -> String {
    let mut table = TextTable::new("a request, ns", ["", UNTRACED, LOSSLESS, "more", DROPPING, "more"]);
    let or_dash = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), number);
    for row in jobs.rows(TABLE) {
        let [untraced, lossless, dropping] = [UNTRACED, LOSSLESS, DROPPING].map(|column| or_dash(request_ns(jobs, row, column)));
        let [lossless_more, dropping_more] = [LOSSLESS, DROPPING].map(|column| or_dash(more_ns(jobs, row, column)));
        table.row([row.to_owned(), untraced, lossless, lossless_more, dropping, dropping_more]);
    }
    let mut text = table.text();
    text.push('\n');
    text.extend(goals.iter().map(Goal::text));
    text.extend(notes.iter().map(|note| format!("{note}\n")));
    text + &jobs.failures()
}

#[cfg(test)]
mod tests {
    use super::super::job::Sample;
    use super::*;

    #[test]
    fn costs_are_differences_of_a_request() {
        let job = |(column, rate): (&str, f64)| {
            let mut job = BenchJob::new(TableCell::new(TABLE, "NOP", column), Duration::ZERO, |_| Err("not run".into()));
            job.samples.push(Sample::from([(VALUE.to_owned(), rate)]));
            job
        };
        let jobs = Jobs([(UNTRACED, 10e6), (LOSSLESS, 2e6), (DROPPING, 4e6)].map(job).into());
        let goals = goals(&jobs);
        let text = text(&jobs, &goals, &[]);
        assert!(goals[0].is_met() && text.contains("100") && text.contains("400") && text.contains("250"), "{text}");
    }
}
