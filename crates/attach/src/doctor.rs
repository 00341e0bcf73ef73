//! `uringlet doctor`: the start of a program as always, but it is reported on standard output, and
//! the process ends before the program's own code runs (`diagnose`).
//!
//! One line a fact: its kind and its fields, with tabs between them. `crates/cli/src/doctor` reads
//! them.

use alloc::format;
use alloc::string::String;
use core::fmt::Display;
use core::sync::atomic::{AtomicBool, Ordering};

use uringlet_sys::passthrough::write_stdout;

use crate::rewrite::{FindingsSource, ObjectReport};
use crate::{environ, explain};

static IS_ASKED: AtomicBool = AtomicBool::new(false);

pub(crate) fn prepare() {
    IS_ASKED.store(environ::is_on("URINGLET_DOCTOR"), Ordering::Relaxed);
}

pub(crate) fn is_asked() -> bool {
    IS_ASKED.load(Ordering::Relaxed)
}

/// Writes one fact. Tabs and line ends in names become spaces.
pub(crate) fn fact(fields: &[&dyn Display]) {
    let mut line = String::new();
    for (at, field) in fields.iter().enumerate() {
        let text = format!("{field}").replace(char::is_control, " ");
        line.push_str(if at == 0 { "" } else { "\t" });
        line.push_str(&text);
    }
    line.push('\n');
    write_stdout(line.as_bytes());
}

/// What was done to one object.
pub(crate) fn object(report: &ObjectReport<'_>) {
    if !is_asked() {
        return;
    }
    let name = explain::name_of(report.name);
    let source = match report.source {
        FindingsSource::Cache => "cache",
        FindingsSource::Scan => "scan",
    };
    fact(&[&"object", &name, &report.sites.len(), &report.ring, &report.any_number, &source]);
    for plan in report.sites {
        fact(&[&"site", &name, &plan.syscall_address(), &plan.call_name(), &plan.kind.name()]);
    }
    for site in report.left {
        fact(&[&"left", &name, &site.at, &site.reason.text()]);
    }
}

/// The sites of an object that were left as they are go by traps.
pub(crate) fn trapped(name: &[u8]) {
    if is_asked() {
        fact(&[&"trapped", &explain::name_of(name)]);
    }
}

/// The system forbids to redirect the io_uring calls of an object.
pub(crate) fn not_rewritten(name: &str) {
    if is_asked() {
        fact(&[&"refused", &name]);
    }
}
