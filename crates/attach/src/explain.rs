//! `--explain`: what was found and rewritten, on standard error.

use alloc::format;
use alloc::string::String;
use core::fmt::Write;
use core::sync::atomic::{AtomicBool, Ordering};

use syscalls::{Sysno, raw};

use crate::rewrite::ObjectReport;

static WANTED: AtomicBool = AtomicBool::new(false);

pub(crate) fn enable() {
    WANTED.store(true, Ordering::Relaxed);
}

/// One line, as one write. The text is made only if somebody wants it.
pub(crate) fn line(text: impl FnOnce() -> String) {
    if !WANTED.load(Ordering::Relaxed) {
        return;
    }
    const STDERR: usize = 2;
    // SAFETY: getpid takes nothing; write reads a live string.
    unsafe {
        let pid = raw::syscall0(Sysno::getpid as usize);
        let line = format!("uringlet[{pid}]: {}\n", text());
        raw::syscall3(Sysno::write as usize, STDERR, line.as_ptr() as usize, line.len());
    }
}

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
        let how = if report.cached { "known from an earlier start" } else { "scanned" };
        let _ = write!(text, "; {how}, {} \u{b5}s", report.microseconds);
        text
    });
}

fn sites(text: &mut String, report: &ObjectReport<'_>) {
    let rewritten: u32 = report.kinds.iter().sum();
    let ObjectReport { ring, generic, left, .. } = report;
    let other = rewritten - ring - generic;
    let _ = write!(text, "{rewritten} sites rewritten: {ring} io_uring, {generic} with the number in a register, {other} other");
    for (kind, count) in report.kinds.iter().enumerate().filter(|(_, count)| **count > 0) {
        let _ = write!(text, ", {count} as P{kind}");
    }
    if *left > 0 {
        let _ = write!(text, "; {left} that might concern io_uring left as they are");
    }
}

/// The last line: all objects together.
pub(crate) fn total(objects: u32, cached: u32, sites: u32, microseconds: u64) {
    line(|| format!("{objects} objects, {cached} known from an earlier start, {sites} sites rewritten, {microseconds} \u{b5}s"));
}
