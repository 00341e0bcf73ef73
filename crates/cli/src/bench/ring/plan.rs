//! The measurements of `uringlet bench ring`.

use std::path::Path;
use std::time::Duration;

use crate::bench::fio;
use crate::bench::job::{BenchJob, Jobs, TableCell};
use crate::bench::json;
use crate::bench::tools::{Attachment, BenchTools};

/// One of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResultTable {
    Enter,
    Nop,
    Write,
    Fio,
}

impl ResultTable {
    pub(super) const ALL: [Self; 4] = [Self::Enter, Self::Nop, Self::Write, Self::Fio];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Enter => "an empty io_uring_enter(2), ns",
            Self::Nop => "NOPs through liburing, million/s",
            Self::Write => "random 1 KiB buffered writes, 10 MB file, thousand/s",
            Self::Fio => "fio, the same writes, thousand/s",
        }
    }

    /// The divisor for the unit in the title.
    pub(super) fn unit(self) -> f64 {
        match self {
            Self::Enter => 1.0,
            Self::Nop => 1e6,
            Self::Write | Self::Fio => 1e3,
        }
    }

    pub(super) fn columns(self) -> &'static [&'static str] {
        match self {
            Self::Enter | Self::Nop => &[KERNEL, ATTACHED, DROP_IN],
            Self::Write => &[PWRITE, KERNEL, ATTACHED, DROP_IN],
            Self::Fio => &[PSYNC, KERNEL, ATTACHED],
        }
    }
}

pub(super) const KERNEL: &str = "kernel's ring";
pub(super) const ATTACHED: &str = "uringlet run";
pub(super) const DROP_IN: &str = "drop-in library";
pub(super) const PWRITE: &str = "pwrite";
pub(super) const PSYNC: &str = "psync";

const RUN: Attachment = Attachment::Attached(&[]);
const TRAPPED: Attachment = Attachment::Attached(&["--trap"]);
/// Expected duration of the worker: starting, warming up, measuring.
const WORKER_TIME: Duration = Duration::from_millis(420);
const FIO_TIME: Duration = Duration::from_secs(1);

/// Whether fio is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FioUse {
    Off,
    IfInstalled,
}

#[derive(Debug)]
pub(super) struct RingPlan {
    pub(super) jobs: Jobs,
    /// What is not measured, and why.
    pub(super) notes: Vec<String>,
}

/// What makes the io_uring calls of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallOrigin {
    Program,
    /// The library, which the drop-in library can replace.
    Liburing,
}

struct RingPlanBuilder<'a> {
    tools: &'a BenchTools,
    plan: RingPlan,
}

pub(super) fn plan(tools: &BenchTools, file: &Path, fio_use: FioUse) -> RingPlan {
    let mut builder = RingPlanBuilder { tools, plan: RingPlan { jobs: Jobs::default(), notes: Vec::new() } };
    if let Some(why) = &tools.no_kernel {
        builder.plan.notes.push(format!("{KERNEL}: not measured, io_uring is not available from the kernel here ({why})"));
    }
    if tools.drop_in.is_none() {
        builder.plan.notes.push(format!("{DROP_IN}: not measured, liburing/liburing.so.2 is not beside uringlet (`make` builds it)"));
    }
    builder.add_enter();
    builder.add_nop();
    builder.add_writes(file);
    match (fio_use, fio::missing()) {
        (FioUse::Off, _) => {}
        (FioUse::IfInstalled, None) => builder.add_fio_depths(file),
        (FioUse::IfInstalled, Some(why)) => builder.plan.notes.push(format!("fio: not measured ({why})")),
    }
    builder.plan
}

impl RingPlanBuilder<'_> {
    fn add_enter(&mut self) {
        for (path, row) in [
            ("symbol", "libc's syscall(): symbol"),
            ("const", "inline, constant number: rewritten"),
            ("generic", "inline, number in a register: rewritten"),
            ("liburing", "liburing's io_uring_enter()"),
        ] {
            let caller = if path == "liburing" { CallOrigin::Liburing } else { CallOrigin::Program };
            self.add_rings(ResultTable::Enter, row, &["enter", "--via", path], caller);
        }
        self.add_attached(TRAPPED, ResultTable::Enter, "code made at run time: trapped (--trap)", &["enter", "--via", "made"]);
    }

    fn add_nop(&mut self) {
        for batch in ["1", "8", "32", "128"] {
            self.add_rings(ResultTable::Nop, &format!("batch {batch}"), &["nop", "--batch", batch], CallOrigin::Liburing);
        }
    }

    fn add_writes(&mut self, file: &Path) {
        let file = file.to_string_lossy().into_owned();
        for depth in ["1", "8", "32"] {
            let row = format!("depth {depth}");
            self.add_cell(ResultTable::Write, &row, PWRITE, Attachment::Plain, &["write", "--via", "pwrite", "--file", &file]);
            self.add_rings(ResultTable::Write, &row, &["write", "--via", "ring", "--depth", depth, "--file", &file], CallOrigin::Liburing);
        }
    }

    /// Adds one job for each available ring implementation.
    fn add_rings(&mut self, table: ResultTable, row: &str, args: &[&str], caller: CallOrigin) {
        self.add_attached(RUN, table, row, args);
        if caller == CallOrigin::Liburing && self.tools.drop_in.is_some() {
            self.add_cell(table, row, DROP_IN, Attachment::DropIn, args);
        }
    }

    /// Adds a job for the kernel's ring, if there is one, and one for `uringlet run`.
    fn add_attached(&mut self, attached: Attachment, table: ResultTable, row: &str, args: &[&str]) {
        if self.tools.no_kernel.is_none() {
            self.add_cell(table, row, KERNEL, Attachment::Plain, args);
        }
        self.add_cell(table, row, ATTACHED, attached, args);
    }

    fn add_cell(&mut self, table: ResultTable, row: &str, column: &'static str, attachment: Attachment, args: &[&str]) {
        let cell = TableCell::new(table.title(), row, column);
        self.plan.jobs.push(BenchJob::program(cell, WORKER_TIME, self.tools.worker(attachment, args), json::sample));
    }

    fn add_fio_depths(&mut self, file: &Path) {
        for depth in [1, 8, 32] {
            self.add_fio("psync", depth, PSYNC, Attachment::Plain, file);
            if self.tools.no_kernel.is_none() {
                self.add_fio("io_uring", depth, KERNEL, Attachment::Plain, file);
            }
            self.add_fio("io_uring", depth, ATTACHED, RUN, file);
        }
    }

    fn add_fio(&mut self, engine: &str, depth: u32, column: &'static str, attachment: Attachment, file: &Path) {
        let writes = fio::Writes { engine, pattern: "randwrite", block: "1k", size: "10m", depth, time: FIO_TIME, file };
        let cell = TableCell::new(ResultTable::Fio.title(), format!("depth {depth}"), column);
        let launch = self.tools.launch(attachment, writes.argv());
        self.plan.jobs.push(BenchJob::program(cell, FIO_TIME + fio::OVERHEAD, launch, fio::sample));
    }
}
