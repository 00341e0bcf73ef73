//! A signal put off until the thread leaves the engine: then `arch` ends the timer and restores the
//! mask.
//!
//! Differs: the interrupt signal itself, sent by the program, is put off like another, but no timer
//! can follow it: if it comes right before a wait, its handler runs when the wait ends.

use uringlet_sys::linux::general::{SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};
use uringlet_sys::process::tid;
use uringlet_sys::signal::{self, TimerId, bit};
use uringlet_sys::thread::{INTERRUPT_MARK, INTERRUPT_SIGNAL, install_interrupt_handler};

use super::siginfo::SignalInfo;
use crate::arch::SignalContext;
use crate::stack::DEFERRED;

/// Signals of faults: blocked, they would kill.
pub(super) const FAULTS: u64 = bit(SIGILL) | bit(SIGTRAP) | bit(SIGBUS) | bit(SIGFPE) | bit(SIGSEGV) | bit(SIGSYS);

/// What is blocked in the engine once a signal has been deferred: not the interrupt, unless it is
/// the program's own that was deferred.
const BLOCKED: u64 = !(FAULTS | bit(INTERRUPT_SIGNAL));

/// The timer word of a thread that has deferred a signal without a timer. Else it is the timer's id
/// plus one; 0: nothing is deferred.
pub(crate) const NO_TIMER: u64 = u64::MAX;

/// Defers the signal of a thread that runs on the engine stack with this base. False: the kernel
/// cannot queue another signal.
pub(super) fn defer(signal: u32, info: SignalInfo, context: SignalContext, base: usize) -> bool {
    // Also where the program wants its handler interrupted by the same signal.
    signal::block(BLOCKED | bit(signal));
    if info.send_to(tid(), signal).is_err() {
        return false;
    }
    // SAFETY: this thread runs on the stack with this base, so nothing else uses its top.
    unsafe {
        let deferred = (base + DEFERRED) as *mut u64;
        let is_first = deferred.read() == 0;
        // Several signals at once: the frame that returns last holds the thread's mask. The
        // program's own interrupt signal may also come when the others are blocked.
        if is_first || signal != INTERRUPT_SIGNAL {
            deferred.add(1).write(context.mask());
        }
        let earlier = if is_first { 0 } else { deferred.add(2).read() };
        deferred.add(2).write(bit(signal) | earlier);
        if is_first {
            deferred.write(start_timer());
        }
    }
    // What the kernel restores when this handler returns.
    context.set_mask(context.mask() & !bit(INTERRUPT_SIGNAL) | BLOCKED | bit(signal));
    true
}

/// Starts the timer that ends a wait; the timer word.
fn start_timer() -> u64 {
    const MILLISECOND: u64 = 1_000_000;
    install_interrupt_handler();
    signal::start_timer(INTERRUPT_SIGNAL, INTERRUPT_MARK, MILLISECOND).map_or(NO_TIMER, |TimerId(id)| u64::from(id) + 1)
}
