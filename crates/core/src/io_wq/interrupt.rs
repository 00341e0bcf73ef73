//! When a worker may be interrupted: only in the blocking part of the cancelled item.
//!
//! ```text
//!                  cancelled                  cancelled
//!   begin()  HIDDEN ---------> never run()      while in run(): a signal now, and an alarm that
//!      |                                        repeats it
//!      v                                              |
//!   run()    INTERRUPTIBLE: the blocking call ----> HIDDEN again: the alarm is off, no signal arrives
//! ```
//!
//! A cancel acts under the worker's class lock, so that the worker runs the item that is meant, and
//! under the guard's own, so that the worker cannot leave its blocking part meanwhile. An item that
//! was cancelled before its blocking part does not begin it. If the cancel comes between that check
//! and the system call, the alarm reaches the worker: it repeats until the worker is out. The
//! worker stops it itself, by a system call, at whose end a signal that is still pending arrives:
//! in no item but this one, and in nothing that follows the blocking part (completion, the next
//! links of its chain).

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use uringlet_sys::alarm::Alarm;
use uringlet_sys::lock::Mutex;
use uringlet_sys::{process, thread};

/// Guards the blocking part of the item that a thread runs.
#[derive(Debug)]
pub struct InterruptGuard {
    /// The worker's thread; 0 if none is bound.
    tid: AtomicU32,
    state: Mutex<InterruptState>,
}

#[derive(Debug)]
struct InterruptState {
    is_interruptible: bool,
    is_cancelled: bool,
    /// A signal was sent during the blocking part.
    was_interrupted: bool,
    alarm: Option<Alarm>,
}

impl InterruptGuard {
    /// For a thread that has no item yet, or that no cancel knows.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            tid: AtomicU32::new(0),
            state: Mutex::new(InterruptState { is_interruptible: false, is_cancelled: false, was_interrupted: false, alarm: None }),
        }
    }

    /// The calling thread, a worker's, is the only one that uses the guard for its items.
    pub(super) fn bind_thread(&self) {
        self.tid.store(process::tid(), Relaxed);
    }

    /// The worker's thread; 0 if none is bound.
    pub(super) fn bound_thread(&self) -> u32 {
        self.tid.load(Relaxed)
    }

    /// The id of the calling thread, whose items these are. In a worker without a system call.
    #[must_use]
    pub fn calling_thread(&self) -> u32 {
        match self.bound_thread() {
            0 => process::tid(),
            tid => tid,
        }
    }

    /// Runs the part of an item that may block: a cancel interrupts it, repeatedly. `None`: the
    /// item was cancelled before, and `block` did not run.
    pub fn run<R>(&self, block: impl FnOnce() -> R) -> Option<R> {
        {
            let mut state = self.state.lock();
            if state.is_cancelled {
                return None;
            }
            state.is_interruptible = true;
        }
        let result = block();
        let mut state = self.state.lock();
        state.is_interruptible = false;
        if state.was_interrupted {
            state.was_interrupted = false;
            state.alarm = None;
            // If no alarm could be had, this is the system call at whose end the signal arrives.
            let _ = process::tid();
        }
        Some(result)
    }

    /// The thread's next item begins.
    pub(super) fn begin(&self) {
        self.state.lock().is_cancelled = false;
    }

    /// The item that this thread runs is cancelled.
    pub(crate) fn cancel(&self, tid: u32) {
        let mut state = self.state.lock();
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
