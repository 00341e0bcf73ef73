//! Everything that is measured: a number for each row and column of each table.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use super::worker::{self, Tools};

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

/// How a program is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Plain,
    Attached,
    DropIn,
}

/// One number, measured again and again.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) group: Group,
    pub(super) row: String,
    pub(super) column: &'static str,
    command: Vec<OsString>,
    library_path: Option<OsString>,
    pub(super) values: Vec<f64>,
    pub(super) failure: Option<String>,
}

#[derive(Debug)]
pub(super) struct Plan {
    pub(super) series: Vec<Series>,
    /// What is not measured, and why.
    pub(super) notes: Vec<String>,
}

impl Series {
    /// Once more; not after a failure.
    pub(super) fn measure(&mut self) {
        if self.failure.is_some() {
            return;
        }
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]);
        if let Some(path) = &self.library_path {
            command.env("LD_LIBRARY_PATH", path);
        }
        let value = if self.group == Group::Fio { fio_rate(&mut command) } else { worker::value(&mut command) };
        match value {
            Ok(value) => self.values.push(value / self.group.unit()),
            Err(error) => self.failure = Some(error),
        }
    }
}

struct Builder<'a> {
    tools: &'a Tools,
    plan: Plan,
}

pub(super) fn plan(tools: &Tools, file: &Path, with_fio: bool) -> Plan {
    let mut builder = Builder { tools, plan: Plan { series: Vec::new(), notes: Vec::new() } };
    if let Some(why) = &tools.no_kernel {
        builder.plan.notes.push(format!("{KERNEL}: not measured, the kernel gives none here ({why})"));
    }
    if tools.drop_in.is_none() {
        builder.plan.notes.push(format!("{DROP_IN}: not measured, liburing/liburing.so.2 is not beside uringlet (`make` builds it)"));
    }
    builder.enters();
    builder.nops();
    builder.writes(file);
    match (with_fio, worker::output(Command::new("fio").arg("--version"))) {
        (false, _) => {}
        (true, Ok(_)) => builder.fio(file),
        (true, Err(why)) => builder.plan.notes.push(format!("fio: not measured ({why})")),
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
            self.rings(Group::Enter, row, &["enter", "--road", road], road == "liburing");
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
        self.add(group, row, ATTACHED, Side::Attached, args);
        if uses_liburing && self.tools.drop_in.is_some() {
            self.add(group, row, DROP_IN, Side::DropIn, args);
        }
    }

    fn add(&mut self, group: Group, row: &str, column: &'static str, side: Side, args: &[&str]) {
        let mut command = vec![self.tools.worker.clone().into()];
        command.extend(args.iter().map(Into::into));
        self.push(group, row, column, side, command);
    }

    fn push(&mut self, group: Group, row: &str, column: &'static str, side: Side, command: Vec<OsString>) {
        let before: Vec<OsString> =
            if side == Side::Attached { vec![self.tools.uringlet.clone().into(), "run".into(), "--".into()] } else { Vec::new() };
        let library_path = if side == Side::DropIn { self.tools.drop_in.clone().map(Into::into) } else { None };
        let command = before.into_iter().chain(command).collect();
        self.plan.series.push(Series { group, row: row.to_owned(), column, command, library_path, values: Vec::new(), failure: None });
    }

    fn fio(&mut self, file: &Path) {
        for depth in ["1", "8", "32"] {
            let row = format!("depth {depth}");
            self.push(Group::Fio, &row, PSYNC, Side::Plain, fio_command("psync", depth, file));
            if self.tools.no_kernel.is_none() {
                self.push(Group::Fio, &row, KERNEL, Side::Plain, fio_command("io_uring", depth, file));
            }
            self.push(Group::Fio, &row, ATTACHED, Side::Attached, fio_command("io_uring", depth, file));
        }
    }
}

fn fio_command(engine: &str, depth: &str, file: &Path) -> Vec<OsString> {
    let mut command: Vec<OsString> =
        ["fio", "--minimal", "--name=bench", "--rw=randwrite", "--bs=1k", "--size=10m"].map(Into::into).to_vec();
    command.extend(["--time_based", "--runtime=1", "--ramp_time=200ms", "--norandommap", "--thread"].map(Into::into));
    command.push(format!("--ioengine={engine}").into());
    command.push(format!("--iodepth={depth}").into());
    let mut name = OsString::from("--filename=");
    name.push(file);
    command.push(name);
    command
}

/// Writes a second, from fio's terse report of version 3: semicolons, the 49th field.
fn fio_rate(command: &mut Command) -> Result<f64, String> {
    const WRITE_RATE: usize = 48;
    let text = worker::output(command)?;
    let line = text.lines().find(|line| line.starts_with("3;")).ok_or("fio printed no report")?;
    let rate = line.split(';').nth(WRITE_RATE).and_then(|field| field.parse().ok());
    rate.ok_or_else(|| "fio's report has no rate of writes".to_owned())
}
