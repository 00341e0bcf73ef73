//! The measurements of `uringlet bench meta`.

use std::ffi::OsString;
use std::time::Duration;

use super::super::job::{BenchJob, Jobs, TableCell};
use super::super::json;
use super::super::tools::{Attachment, BenchTools};
use super::args::BenchMetaArgs;

/// Operations as the worker names them, and what they are.
pub(super) const OPS: [(&str, &str); 4] =
    [("statx", "statx, cached"), ("open", "openat, close"), ("unlink", "unlinkat"), ("create", "openat with O_CREAT, close")];

pub(super) const CALLS: &str = "calls";
pub(super) const KERNEL: &str = "kernel's ring";
pub(super) const ATTACHED: &str = "uringlet run";
pub(super) const COLUMNS: [&str; 3] = [CALLS, KERNEL, ATTACHED];

/// The table of a size of batches.
pub(super) fn title(batch: u32) -> String {
    format!("batches of {batch}")
}

pub(super) fn plan(tools: &BenchTools, args: &BenchMetaArgs) -> Jobs {
    let mut jobs = Jobs::default();
    for &batch in &args.batches {
        for (op, row) in OPS {
            for (column, via, attachment) in
                [(CALLS, "calls", Attachment::Plain), (KERNEL, "ring", Attachment::Plain), (ATTACHED, "ring", Attachment::Attached(&[]))]
            {
                if column == KERNEL && tools.no_kernel.is_some() {
                    continue;
                }
                let numbers = [batch.to_string(), args.seconds.to_string()];
                let words = ["meta", "--via", via, "--op", op, "--batch", &numbers[0], "--seconds", &numbers[1], "--directory"];
                let argv = words.into_iter().map(OsString::from).chain([args.directory.clone().into()]);
                let expected = Duration::from_secs_f64(args.seconds) + Duration::from_millis(30);
                jobs.push(BenchJob::program(
                    TableCell::new(title(batch), row, column),
                    expected,
                    tools.worker(attachment, argv),
                    json::sample,
                ));
            }
        }
    }
    jobs
}
