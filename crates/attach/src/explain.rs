//! `--explain`: what was found and rewritten, on standard error.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use core::fmt::Write;
use core::sync::atomic::{AtomicBool, Ordering};

use uringlet_sys::passthrough::write_stderr;
use uringlet_sys::process::{monotonic_ns, pid_now};

use crate::bindings;
use crate::rewrite::{FindingsSource, LoadedObject, ObjectReport};

static IS_ENABLED: AtomicBool = AtomicBool::new(false);

pub(crate) fn enable() {
    IS_ENABLED.store(true, Ordering::Relaxed);
}

pub(crate) fn is_enabled() -> bool {
    IS_ENABLED.load(Ordering::Relaxed)
}

/// The time, for a report; without `--explain` nobody asks the kernel.
pub(crate) fn now_ns() -> u64 {
    if is_enabled() { monotonic_ns() } else { 0 }
}

/// Prints one line, by one write. Without `--explain` the text is not made.
pub(crate) fn line(text: impl FnOnce() -> String) {
    if is_enabled() {
        write_stderr(format!("uringlet[{}]: {}\n", pid_now(), text()).as_bytes());
    }
}

/// What an object is called.
pub(crate) fn name_of(name: &[u8]) -> Cow<'_, str> {
    if name.is_empty() { "the program".into() } else { String::from_utf8_lossy(name) }
}

/// The io_uring calls of an object are trapped where they could not be redirected.
pub(crate) fn trapped_object(name: &[u8]) {
    line(|| format!("{}: the sites left as they are go by traps (seccomp)", name_of(name)));
}

/// What was done to one object, and to each of its sites.
pub(crate) fn object(report: &ObjectReport<'_>) {
    summary(report);
    for plan in report.sites {
        line(|| format!("{}: {} rewritten {}", place(report, plan.syscall_address()), plan.call_name(), plan.kind.name()));
    }
    for site in report.left {
        line(|| format!("{}: left as it is: {}", place(report, site.at), site.reason.text()));
    }
}

/// An address of an object, and the function that it lies in, if that is known.
fn place(report: &ObjectReport<'_>, at: u64) -> String {
    let mut text = format!("{}: 0x{at:x}", name_of(report.name));
    if let Some((function, offset)) = report.function_at(at) {
        let _ = write!(text, " in {}+0x{offset:x}", function.to_string_lossy());
    }
    text
}

/// The functions of libc whose place those of this object take, for each object that calls them.
pub(crate) fn bindings(objects: &[LoadedObject]) {
    if !is_enabled() {
        return;
    }
    for (object, names) in bindings::all(objects) {
        line(|| format!("{}: interposed: {}", name_of(&object.name), names.join(", ")));
    }
}

fn summary(report: &ObjectReport<'_>) {
    line(|| {
        let mut text = name_of(report.name).into_owned();
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
    for site in report.left {
        line(|| format!("  left as it is at {:#x}: {}", site.at, site.reason.text()));
    }
}

fn sites(text: &mut String, report: &ObjectReport<'_>) {
    let rewritten: u32 = report.kinds.iter().map(|(_, count)| count).sum();
    let ObjectReport { ring, any_number, left, .. } = report;
    let other = rewritten - ring - any_number;
    let _ = write!(text, "{rewritten} sites rewritten: {ring} io_uring, {any_number} with the number in a register, {other} other");
    for (kind, count) in report.kinds.iter().filter(|(_, count)| *count > 0) {
        let _ = write!(text, ", {count} {}", kind.name());
    }
    if !left.is_empty() {
        let _ = write!(text, "; {} that might concern io_uring left as they are", left.len());
    }
}

/// The last line: all objects together.
pub(crate) fn totals(objects: u32, cached: u32, sites: u32, microseconds: u64) {
    line(|| format!("{objects} objects, {cached} known from an earlier start, {sites} sites rewritten, {microseconds} \u{b5}s"));
}
