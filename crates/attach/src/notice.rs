//! One line on standard error when the program's io_uring calls cannot reach the engine: what, why,
//! and what to do.
//!
//! `uringlet run` says in `URINGLET_NOTICE` what the user wants. The program that it starts takes
//! that over and changes the variable, so its children, of which most never use io_uring, say
//! nothing unless `--explain` asks. `--quiet` is for all processes.

use alloc::format;
use alloc::string::String;
use core::sync::atomic::{AtomicU8, Ordering};

use uringlet_sys::passthrough::write_stderr;
use uringlet_sys::{process, refusal, required_calls};

use crate::rewrite::LoadedObject;
use crate::{bindings, doctor, environ, explain};

/// Exit status of a program that `--require` does not let run.
const REFUSED: i32 = 125;

/// Say it only if `--explain` asks: a child, or a program that was not started by `uringlet run`.
const SILENT: u8 = 0;
/// Say it.
const PRINT: u8 = 1;
/// Say it, and do not run the program.
const REQUIRE: u8 = 2;

static POLICY: AtomicU8 = AtomicU8::new(SILENT);

/// Reads what the user wants.
pub(crate) fn prepare() {
    let policy = match environ::variable("URINGLET_NOTICE") {
        Some(b"print") => PRINT,
        Some(b"require") => REQUIRE,
        Some(b"quiet") => return refusal::be_quiet(),
        _ => return,
    };
    environ::replace("URINGLET_NOTICE", b"child");
    POLICY.store(policy, Ordering::Relaxed);
}

/// After the objects of the program have been examined. `has_ring_sites`: a rewritten site can make
/// an io_uring call, or it was said why none was rewritten.
pub(crate) fn at_start(objects: &[LoadedObject], has_ring_sites: bool) {
    let policy = POLICY.load(Ordering::Relaxed);
    if policy == SILENT && !explain::is_enabled() {
        return;
    }
    if !has_ring_sites && !bindings::may_reach_engine(objects) {
        give(
            "the program was not attached: neither it nor its libraries can make an io_uring call, load a library or start a program. Run it without uringlet",
        );
    }
    if policy == REQUIRE
        && let Some(name) = required_calls::denied()
    {
        give(&format!("no ring can be made: the system call {name} is denied. Allow it in the seccomp filter (docs/system-calls.md)"));
    }
}

/// What the user can do where code may not be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Trap the calls, or change the filter that forbids it.
    Trap,
    /// Only the latter: the program takes the signal of traps, by calls that are not seen.
    Filter,
}

/// The system forbids to redirect the io_uring calls of an object.
pub(crate) fn not_rewritten(name: &[u8], remedy: Remedy) {
    let name = explain::name_of(name);
    doctor::not_rewritten(&name);
    let remedy = match remedy {
        Remedy::Trap => "Use uringlet run --trap, or allow them (docs/system-calls.md)",
        Remedy::Filter => "Allow them (docs/system-calls.md): --trap does not help, Go's runtime handles SIGSYS itself",
    };
    give(&format!("{name}: its io_uring calls stay the kernel's: mprotect(2) and mmap(2) may not make code here. {remedy}"));
}

/// Says it, and ends the process if the user does not want it to run so.
fn give(text: &str) {
    let policy = POLICY.load(Ordering::Relaxed);
    if policy == SILENT {
        return explain::line(|| text.into());
    }
    let consequence = if policy == REQUIRE { ". --require: nothing is run" } else { "" };
    let line: String = format!("uringlet: {text}{consequence}\n");
    write_stderr(line.as_bytes());
    if policy == REQUIRE {
        process::exit(REFUSED);
    }
}

/// The program begins to run: from now on `--require` is no reason to end it.
pub(crate) fn program_starts() {
    let _ = POLICY.compare_exchange(REQUIRE, PRINT, Ordering::Relaxed, Ordering::Relaxed);
}
