//! Waits on the program's futexes: on several at a time, requeued from one to another, interrupted.

use super::{KERNEL, Kernel, On, Parker, Sleeper, with};
use std::sync::Arc;

/// A thread's wait, from its first entry in a queue to its end.
#[derive(Debug)]
pub(crate) struct Sleep {
    parker: Arc<Parker>,
    entries: usize,
}

impl Default for Sleep {
    fn default() -> Self {
        Self { parker: Parker::new(true), entries: 0 }
    }
}

impl Sleep {
    /// Adds the thread to a queue if `may_sleep` returns true. Returns whether it did.
    pub(crate) fn enqueue(&mut self, on: On, mask: u32, may_sleep: impl FnOnce() -> bool) -> bool {
        with(|kernel| {
            let is_queued = may_sleep();
            if is_queued {
                let parker = Arc::clone(&self.parker);
                kernel.sleepers.push(Sleeper { on, mask, deadline_ns: u64::MAX, nth: self.entries, parker });
                self.entries += 1;
            }
            is_queued
        })
    }

    /// Sleeps until a wake or an alarm, unless one has come already. Returns true if it was woken
    /// for no reason instead.
    pub(crate) fn wait(&self) -> bool {
        let mut kernel = KERNEL.lock().unwrap();
        while self.parker.end().is_none() && kernel.alarms == 0 {
            if core::mem::take(&mut *self.parker.is_disturbed.lock().unwrap()) {
                return true;
            }
            kernel = self.parker.condvar.wait(kernel).unwrap();
        }
        false
    }

    /// Leaves all queues: no later wake finds the thread. Returns at which of them it was woken
    /// before, whether or not an alarm came as well.
    pub(crate) fn dequeue(self) -> Option<usize> {
        with(|kernel| kernel.sleepers.retain(|sleeper| !Arc::ptr_eq(&sleeper.parker, &self.parker)));
        self.parker.end().map(|(_, nth)| nth)
    }
}

impl Kernel {
    /// Moves the oldest sleeper to the end of another queue without waking it. Returns whether
    /// there was one.
    pub(crate) fn move_one(&mut self, from: On, to: On) -> bool {
        let Some(oldest) = self.sleepers.iter().position(|sleeper| sleeper.on == from) else { return false };
        let sleeper = self.sleepers.remove(oldest);
        self.sleepers.push(Sleeper { on: to, ..sleeper });
        true
    }

    /// Wakes all sleepers that can be interrupted, for no reason.
    pub(super) fn disturb(&self) {
        for sleeper in self.sleepers.iter().filter(|sleeper| sleeper.parker.is_interruptible) {
            *sleeper.parker.is_disturbed.lock().unwrap() = true;
            sleeper.parker.condvar.notify_one();
        }
    }

    /// Interrupts all sleepers that can be interrupted.
    pub(crate) fn start_alarm(&mut self) {
        self.alarms += 1;
        for sleeper in self.sleepers.iter().filter(|sleeper| sleeper.parker.is_interruptible) {
            sleeper.parker.condvar.notify_one();
        }
    }
}
