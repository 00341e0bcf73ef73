//! `--explain`: what was found and rewritten, on standard error.

use alloc::format;
use alloc::string::String;
use core::fmt::Write;
use core::sync::atomic::{AtomicBool, Ordering};

use uringlet_sys::passthrough::write_stderr;
use uringlet_sys::process::{monotonic_ns, pid_now};

use crate::rewrite::{FindingsSource, ObjectReport};

static IS_ENABLED: AtomicBool = AtomicBool::new(false);

pub(crate) fn enable() {
    IS_ENABLED.store(true, Ordering::Relaxed);
}

/// The time, for a report; without `--explain` nobody asks the kernel.
pub(crate) fn now_ns() -> u64 {
    if IS_ENABLED.load(Ordering::Relaxed) { monotonic_ns() } else { 0 }
}

/// Prints one line, by one write. Without `--explain` the text is not made.
pub(crate) fn line(text: impl FnOnce() -> String) {
    if IS_ENABLED.load(Ordering::Relaxed) {
        write_stderr(format!("uringlet[{}]: {}\n", pid_now(), text()).as_bytes());
    }
}

/// The system forbids to redirect the io_uring calls of an object. Printed in any case: they are
/// the kernel's.
pub(crate) fn refusal(name: &[u8]) {
    let name = if name.is_empty() { "the program".into() } else { String::from_utf8_lossy(name) };
    let text = "its io_uring calls stay the kernel's: mprotect(2) and mmap(2) may not make code here";
    write_stderr(format!("uringlet: {name}: {text} (docs/system-calls.md)\n").as_bytes());
}

/// What was done to one object.
pub(crate) fn object(report: &ObjectReport<'_>) {
    line(|| {
        let mut text = String::from_utf8_lossy(report.name).into_owned();
        if text.is_empty() {
            text.push_str("the program");
        }
        text.push_str(if report.build_id.is_empty() { " (no build-id" } else { " (build-id " });
        for byte in report.build_id {
            let _ = write!(text, "{byte:02x}");
        }
        text.push_str("): ");
        sites(&mut text, report);
        let source = match report.source {
            FindingsSource::Cache => "known from an earlier start",
            FindingsSource::Scan => "scanned",
        };
        let _ = write!(text, "; {source}, {} \u{b5}s", report.microseconds);
        text
    });
}

fn sites(text: &mut String, report: &ObjectReport<'_>) {
    let rewritten: u32 = report.kinds.iter().map(|(_, count)| count).sum();
    let ObjectReport { ring, any_number, unpatched, .. } = report;
    let other = rewritten - ring - any_number;
    let _ = write!(text, "{rewritten} sites rewritten: {ring} io_uring, {any_number} with the number in a register, {other} other");
    for (kind, count) in report.kinds.iter().filter(|(_, count)| *count > 0) {
        let _ = write!(text, ", {count} {}", kind.name());
    }
    if *unpatched > 0 {
        let _ = write!(text, "; {unpatched} that might concern io_uring left as they are");
    }
}

/// The last line: all objects together.
pub(crate) fn totals(objects: u32, cached: u32, sites: u32, microseconds: u64) {
    line(|| format!("{objects} objects, {cached} known from an earlier start, {sites} sites rewritten, {microseconds} \u{b5}s"));
}
