//! Unknown `URINGLET_*` variables and wrong values: one line on standard error when the process
//! asks for its first ring, so that programs without a ring say nothing.
//!
//! By then the program may have put a file of its own at the number of standard error. So that is
//! compared with what it was at the start.

use alloc::boxed::Box;
use alloc::string::String;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use uringlet_core::variables::complaint;
use uringlet_sys::io;
use uringlet_sys::linux::general::STDERR_FILENO;
use uringlet_sys::passthrough::write_stderr;

use crate::{environ, explain};

/// The line, and the device and inode of standard error at the start.
struct MistakeReport {
    line: String,
    stderr: Option<(u64, u64)>,
}

static REPORT: AtomicPtr<MistakeReport> = AtomicPtr::new(null_mut());

fn stderr_file() -> Option<(u64, u64)> {
    io::fstat(STDERR_FILENO.cast_signed()).ok().map(|stat| (stat.dev, stat.ino))
}

/// Name and value.
fn parts(variable: &[u8]) -> Option<(&[u8], &[u8])> {
    let equals = variable.iter().position(|&byte| byte == b'=')?;
    Some((&variable[..equals], &variable[equals + 1..]))
}

/// At the start.
pub(crate) fn check() {
    if environ::variable("URINGLET_NOTICE") == Some(b"quiet") {
        return;
    }
    let Some(line) = complaint(environ::variables().filter_map(|variable| parts(variable.to_bytes()))) else { return };
    REPORT.store(Box::into_raw(Box::new(MistakeReport { line, stderr: stderr_file() })), Ordering::Release);
    if explain::is_enabled() {
        report();
    }
}

/// At the first ring.
pub(crate) fn report() {
    let report = REPORT.swap(null_mut(), Ordering::AcqRel);
    if report.is_null() {
        return;
    }
    // SAFETY: `check` made it, and no other thread has got it.
    let report = unsafe { Box::from_raw(report) };
    if report.stderr.is_some() && report.stderr == stderr_file() {
        write_stderr(report.line.as_bytes());
    }
}
