//! When a worker may be interrupted: only in the blocking part of the work that is meant.
//!
//! ```text
//!                     cancelled                cancelled
//!   begin()  HIDDEN ------------> never exposed        while exposed: a signal now, and an alarm that repeats it
//!      |                                                     |
//!      v                                                     v
//!   run()  EXPOSED: the blocking call ----> HIDDEN again: the alarm is off, nothing strikes any more
//! ```
//!
//! Who cancels looks and acts under the worker's class lock, so that the item is the one that is meant, and under the
//! interrupts's, so that the worker cannot get out of its blocking part meanwhile. What was cancelled before its blocking
//! part is not begun. What was cancelled between that look and the system call is reached by the alarm, which rings until
//! the worker is out. It calls the alarm off itself, by a system call, at whose end a signal that is still pending
//! strikes: in no item but this one, and in none of what follows the blocking part (completing, the links behind it).

use uringlet_sys::alarm::Alarm;
use uringlet_sys::lock::Mutex;
use uringlet_sys::{process, thread};

/// Whether the thread that works on an item may be interrupted.
#[derive(Debug)]
pub struct InterruptGuard(Mutex<InterruptState>);

#[derive(Debug)]
struct InterruptState {
    is_interruptible: bool,
    is_cancelled: bool,
    /// A signal was sent during the blocking part.
    was_interrupted: bool,
    alarm: Option<Alarm>,
}

impl InterruptGuard {
    /// Of a thread that nobody knows, or that has no item yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(InterruptState { is_interruptible: false, is_cancelled: false, was_interrupted: false, alarm: None }))
    }

    /// Runs the part of a piece of work that may block: a cancel interrupts it, again and again. `None`: it was cancelled
    /// before, and is not begun.
    pub fn run<R>(&self, block: impl FnOnce() -> R) -> Option<R> {
        {
            let mut state = self.0.lock();
            if state.is_cancelled {
                return None;
            }
            state.is_interruptible = true;
        }
        let result = block();
        let mut state = self.0.lock();
        state.is_interruptible = false;
        if state.was_interrupted {
            state.was_interrupted = false;
            state.alarm = None;
            // Where there is no alarm, another system call: a signal strikes at its end.
            let _ = process::tid();
        }
        Some(result)
    }

    /// Another item begins.
    pub(super) fn begin(&self) {
        self.0.lock().is_cancelled = false;
    }

    /// The item is cancelled, at which this thread works.
    pub(crate) fn cancel(&self, tid: u32) {
        let mut state = self.0.lock();
        state.is_cancelled = true;
        if state.is_interruptible && state.alarm.is_none() {
            state.was_interrupted = true;
            thread::interrupt(tid);
            state.alarm = Alarm::start(tid).ok();
        }
    }
}

impl Default for InterruptGuard {
    fn default() -> Self {
        Self::new()
    }
}
