//! Whether this process records.
//!
//! ```text
//!   OFF --a path from the environment or by trace -p--> REQUESTED --next event--> OPENING --> ON
//!    ^                                                                               |         |
//!    +------------------------- the path cannot be opened ---------------------------+         |
//!    +------------------- OPENING <--- the tracer has left or died ----------------------------+
//! ```
//! The state is the only word that a process without a tracer looks at. The thread that finds
//! `REQUESTED` opens the buffer; others wait for it, so that no record is lost. A thread counts
//! itself as a user while it has the buffer: the one that finds no reader takes the buffer away,
//! and unmaps it when no user is left.
//!
//! A process that injects faults has `LOOKING` in place of `OFF`: its requests take the same slow
//! way.
//!
//! `trace -p` writes path and state by process_vm_writev(2), the state last.

use super::buffer::TraceBuffer;
use super::control_word::{LOOKING, OFF, ON, OPENING, PATH, REQUESTED, TraceControl};
use super::layout::{RecordKind, TraceRecord};
use super::queue::Pushed;
use crate::passthrough::write_stderr;
use crate::process::{pid, sleep_ns, tid};
use crate::stats::trace_control;
use crate::{clock, fd_table, process, program_tid};
use alloc::boxed::Box;
use core::ffi::CStr;
use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32};
use syscalls::Errno;

static BUFFER: AtomicPtr<TraceBuffer> = AtomicPtr::new(ptr::null_mut());
/// Threads that have the buffer.
static USERS: AtomicU32 = AtomicU32::new(0);
/// The process has not said who it is.
static IS_NEW: AtomicBool = AtomicBool::new(false);

/// Counts buffers and processes: file names that a former tracer was told are told again.
static TRACE: AtomicU8 = AtomicU8::new(0);

fn next_trace() {
    TRACE.store(TRACE.load(Relaxed) % 7 + 1, Relaxed);
    IS_NEW.store(true, Relaxed);
}

/// Whether this process records, or may be about to, or [looks](look) at its requests. One relaxed
/// load.
#[inline(always)]
#[must_use]
pub fn is_on() -> bool {
    trace_control().state.load(Relaxed) != OFF
}

/// From now on [`is_on`], with a tracer or without one.
pub fn look() {
    let control = trace_control();
    control.idle.store(LOOKING, Relaxed);
    let _ = control.state.compare_exchange(OFF, LOOKING, AcqRel, Relaxed);
}

/// The state without a tracer.
fn idle() -> u32 {
    trace_control().idle.load(Relaxed)
}

/// Records from now on, for the tracer whose buffer is at this path.
pub fn request(path: &[u8]) {
    let Some((bytes, _)) = TraceControl::request_bytes(path) else { return not_traced(path, "its path is too long") };
    let control = trace_control();
    for (to, from) in control.path.iter().zip(bytes) {
        to.store(from, Relaxed);
    }
    control.state.store(REQUESTED, Release);
}

/// Calls `act` with the tracer's buffer, unless there is none any more.
#[cold]
#[inline(never)]
pub fn with_buffer<R>(act: impl FnOnce(TraceWriter<'_>) -> R) -> Option<R> {
    if trace_control().state.load(Acquire) != ON {
        open_if_requested();
    }
    USERS.fetch_add(1, SeqCst);
    // SAFETY: null, or a box that is freed only when it was taken away and no user is left.
    let buffer = unsafe { BUFFER.load(SeqCst).as_ref() };
    let result = buffer.map(|buffer| {
        let writer = TraceWriter { buffer };
        if IS_NEW.load(Relaxed) && IS_NEW.swap(false, AcqRel) {
            writer.introduce();
        }
        act(writer)
    });
    let dead = buffer.filter(|buffer| !buffer.has_reader()).map(ptr::from_ref);
    USERS.fetch_sub(1, Release);
    if let Some(dead) = dead {
        close(dead);
    }
    result
}

/// A process' side of the buffer.
#[derive(Clone, Copy, Debug)]
pub struct TraceWriter<'b> {
    buffer: &'b TraceBuffer,
}

impl TraceWriter<'_> {
    /// What the tracer wants.
    #[must_use]
    pub fn policy(self) -> super::TracePolicy {
        self.buffer.policy()
    }

    /// Records; may wait for room.
    pub fn record(self, record: &TraceRecord) {
        let _: Pushed = self.buffer.push(pid(), record);
    }

    /// Whether the tracer has the name of the number's file. Once it was asked, it has.
    #[must_use]
    pub fn is_named(self, fd: i32) -> bool {
        fd_table::is_named(fd, TRACE.load(Relaxed))
    }

    fn introduce(self) {
        let mut payload = [0; super::PAYLOAD_WORDS];
        payload[..2].copy_from_slice(&process::name_words());
        let tid = tid();
        self.record(&TraceRecord {
            kind: RecordKind::Process as u8,
            ticks: clock::ticks(),
            pid: pid(),
            tid,
            payload,
            ..TraceRecord::default()
        });
    }
}

/// Opens the buffer if that is requested, or waits until another thread has done so.
#[cold]
fn open_if_requested() {
    let state = &trace_control().state;
    match state.compare_exchange(REQUESTED, OPENING, AcqRel, Acquire) {
        Ok(_) => {
            let is_open = open();
            let _ = state.compare_exchange(OPENING, if is_open { ON } else { idle() }, AcqRel, Relaxed);
        }
        Err(_) => {
            while state.load(Acquire) == OPENING {
                sleep_ns(100_000);
            }
        }
    }
}

fn open() -> bool {
    let control = trace_control();
    let bytes: [u8; PATH] = core::array::from_fn(|n| control.path[n].load(Relaxed));
    // That of a tracer which has died.
    take_away();
    let Ok(path) = CStr::from_bytes_until_nul(&bytes) else { return false };
    match TraceBuffer::open(path) {
        Ok(buffer) => {
            next_trace();
            BUFFER.store(Box::into_raw(Box::new(buffer)), SeqCst);
            true
        }
        // The tracer has ended: it is known to whom it matters.
        Err(Errno::ENOENT) => false,
        Err(errno) => {
            not_traced(path.to_bytes(), reason(errno));
            false
        }
    }
}

const fn reason(errno: Errno) -> &'static str {
    match errno {
        Errno::EACCES | Errno::EPERM => "it is another user's",
        Errno::EINVAL => "it is no trace of this version",
        _ => "it cannot be opened or mapped",
    }
}

fn not_traced(path: &[u8], why: &str) {
    const LINE: usize = 256;
    let mut line = [0_u8; LINE];
    let mut len = 0;
    for part in [b"uringlet: not traced: ", path, b": ", why.as_bytes(), b"\n"] {
        let part = &part[..part.len().min(LINE - len)];
        line[len..len + part.len()].copy_from_slice(part);
        len += part.len();
    }
    write_stderr(&line[..len]);
}

/// The tracer of this buffer is gone.
#[cold]
fn close(dead: *const TraceBuffer) {
    let state = &trace_control().state;
    if state.compare_exchange(ON, OPENING, AcqRel, Relaxed).is_err() {
        return;
    }
    // Another thread may have closed it, and opened that of another tracer.
    let is_dead = ptr::eq(BUFFER.load(SeqCst), dead);
    if is_dead {
        take_away();
    }
    // Another tracer may have asked meanwhile.
    let _ = state.compare_exchange(OPENING, if is_dead { idle() } else { ON }, AcqRel, Relaxed);
}

fn take_away() {
    let buffer = BUFFER.swap(ptr::null_mut(), SeqCst);
    if buffer.is_null() {
        return;
    }
    while USERS.load(SeqCst) != 0 {
        sleep_ns(100_000);
    }
    // SAFETY: made from a box, taken away once, and no thread has it any more: one that comes now
    // finds null.
    drop(unsafe { Box::from_raw(buffer) });
}

/// In a forked child: the parent's threads are not there.
pub fn forget_in_child() {
    USERS.store(0, Relaxed);
    next_trace();
    program_tid::forget();
    let _ = trace_control().state.compare_exchange(OPENING, REQUESTED, AcqRel, Relaxed);
}
