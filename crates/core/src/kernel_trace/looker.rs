//! A thread that looks at the rings while something may happen in them without a call of the
//! program: CQEs of requests in flight, SQEs of a ring with SQPOLL. It ends when nothing may.
//!
//! It is started under the lock of the rings, and ends under it: no ring is left without looks.

use super::table::RINGS;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use uringlet_sys::process::{monotonic_ns, sleep_ns, yield_now};
use uringlet_sys::thread;
use uringlet_sys::trace::{is_on, with_buffer};

/// Between two looks while something happens, and when nothing has for a while.
const SHORT_NS: u64 = 100_000;
const LONG_NS: u64 = 500_000;
/// While the kernel's thread takes SQEs, ours looks without a pause: a program may fill its SQ
/// again in less time than any sleep takes.
const POLLED_NS: u64 = 1_000_000;
/// Looks at nothing, before they come less often.
const SHORT_LOOKS: u32 = 64;
/// The most that a call waits for the thread's end.
const END_NS: u64 = 50_000_000;

const NONE: u32 = 0;
const LOOKS: u32 = 1;
/// It is to end.
const ENDING: u32 = 2;

static STATE: AtomicU32 = AtomicU32::new(NONE);

/// The caller has the lock of the rings, and one of them needs looks.
pub(super) fn start() {
    if STATE.compare_exchange(NONE, LOOKS, AcqRel, Relaxed).is_err() {
        return;
    }
    if thread::spawn("uringlet-trace", run).is_err() {
        // What calls of the program see remains.
        STATE.store(NONE, Release);
    }
}

fn run() {
    let mut idle = 0_u32;
    let mut polled_ns = 0;
    loop {
        match idle {
            _ if polled_ns != 0 && monotonic_ns() < polled_ns + POLLED_NS => yield_now(),
            0..SHORT_LOOKS => sleep_ns(SHORT_NS),
            _ => sleep_ns(LONG_NS),
        }
        let mut rings = RINGS.lock();
        let seen = if is_on() { with_buffer(|writer| rings.look(writer)) } else { None }.unwrap_or_default();
        if !seen.needs_looks || STATE.load(Acquire) == ENDING {
            STATE.store(NONE, Release);
            return;
        }
        idle = if seen.saw { 0 } else { idle.saturating_add(1) };
        if seen.saw_polled {
            polled_ns = monotonic_ns();
        }
    }
}

/// Ends the thread, before a call that may change what its starter may do. It starts again, with
/// what that has left, when there is something to look at.
pub(super) fn stop() {
    const STEP_NS: u64 = 50_000;
    if STATE.compare_exchange(LOOKS, ENDING, AcqRel, Relaxed).is_err() {
        return;
    }
    let deadline = monotonic_ns() + END_NS;
    while (STATE.load(Acquire) != NONE || thread::count_of_engine() > 0) && monotonic_ns() < deadline {
        sleep_ns(STEP_NS);
    }
}

pub(super) fn forget_in_child() {
    STATE.store(NONE, Relaxed);
}
