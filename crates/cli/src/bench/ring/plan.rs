//! Everything that is measured: a number for each row and column of each table.

use std::path::Path;
use std::time::Duration;

use crate::bench::fio;
use crate::bench::job::{Job, Jobs, Place};
use crate::bench::json;
use crate::bench::tools::{Side, Tools};

/// A table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    Enter,
    Nop,
    Write,
    Fio,
}

impl Group {
    pub(super) const ALL: [Self; 4] = [Self::Enter, Self::Nop, Self::Write, Self::Fio];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Enter => "an empty io_uring_enter(2), ns",
            Self::Nop => "NOPs through liburing, million/s",
            Self::Write => "random 1 KiB buffered writes, 10 MB file, thousand/s",
            Self::Fio => "fio, the same writes, thousand/s",
        }
    }

    /// Divides what was measured.
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

const RUN: Side = Side::Attached(&[]);
/// Of the worker: warming up, measuring, starting.
const WORKER_TIME: Duration = Duration::from_millis(420);
const FIO_TIME: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Plan {
    pub(super) jobs: Jobs,
    /// What is not measured, and why.
    pub(super) notes: Vec<String>,
}

struct Builder<'a> {
    tools: &'a Tools,
    plan: Plan,
}

pub(super) fn plan(tools: &Tools, file: &Path, with_fio: bool) -> Plan {
    let mut builder = Builder { tools, plan: Plan { jobs: Jobs::default(), notes: Vec::new() } };
    if let Some(why) = &tools.no_kernel {
        builder.plan.notes.push(format!("{KERNEL}: not measured, the kernel gives none here ({why})"));
    }
    if tools.drop_in.is_none() {
        builder.plan.notes.push(format!("{DROP_IN}: not measured, liburing/liburing.so.2 is not beside uringlet (`make` builds it)"));
    }
    builder.enters();
    builder.nops();
    builder.writes(file);
    match (with_fio, fio::missing()) {
        (false, _) => {}
        (true, None) => builder.fio(file),
        (true, Some(why)) => builder.plan.notes.push(format!("fio: not measured ({why})")),
    }
    builder.plan
}

impl Builder<'_> {
    fn enters(&mut self) {
        for (road, row) in [
            ("symbol", "libc's syscall(): symbol"),
            ("const", "inline, constant number: rewritten"),
            ("generic", "inline, number in a register: rewritten"),
            ("liburing", "liburing's io_uring_enter()"),
        ] {
            self.rings(Group::Enter, row, &["enter", "--via", road], road == "liburing");
        }
    }

    fn nops(&mut self) {
        for batch in ["1", "8", "32", "128"] {
            self.rings(Group::Nop, &format!("batch {batch}"), &["nop", "--batch", batch], true);
        }
    }

    fn writes(&mut self, file: &Path) {
        let file = file.to_string_lossy().into_owned();
        for depth in ["1", "8", "32"] {
            let row = format!("depth {depth}");
            self.add(Group::Write, &row, PWRITE, Side::Plain, &["write", "--via", "pwrite", "--file", &file]);
            self.rings(Group::Write, &row, &["write", "--via", "ring", "--depth", depth, "--file", &file], true);
        }
    }

    /// On every ring that there is.
    fn rings(&mut self, group: Group, row: &str, args: &[&str], uses_liburing: bool) {
        if self.tools.no_kernel.is_none() {
            self.add(group, row, KERNEL, Side::Plain, args);
        }
        self.add(group, row, ATTACHED, RUN, args);
        if uses_liburing && self.tools.drop_in.is_some() {
            self.add(group, row, DROP_IN, Side::DropIn, args);
        }
    }

    fn add(&mut self, group: Group, row: &str, column: &'static str, side: Side, args: &[&str]) {
        let place = Place::new(group.title(), row, column);
        self.plan.jobs.push(Job::program(place, WORKER_TIME, self.tools.worker(side, args), json::sample));
    }

    fn fio(&mut self, file: &Path) {
        for depth in [1, 8, 32] {
            self.add_fio("psync", depth, PSYNC, Side::Plain, file);
            if self.tools.no_kernel.is_none() {
                self.add_fio("io_uring", depth, KERNEL, Side::Plain, file);
            }
            self.add_fio("io_uring", depth, ATTACHED, RUN, file);
        }
    }

    fn add_fio(&mut self, engine: &str, depth: u32, column: &'static str, side: Side, file: &Path) {
        let writes = fio::Writes { engine, pattern: "randwrite", block: "1k", size: "10m", depth, time: FIO_TIME, file };
        let place = Place::new(Group::Fio.title(), format!("depth {depth}"), column);
        let launch = self.tools.launch(side, writes.argv());
        self.plan.jobs.push(Job::program(place, FIO_TIME + fio::OVERHEAD, launch, fio::sample));
    }
}
