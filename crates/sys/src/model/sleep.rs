//! Sleeps on the program's futexes: on several at a time, moved from one to another, interrupted.

use super::{Bed, KERNEL, Kernel, On, Sleeper, with};
use std::sync::Arc;

/// A thread's sleep, from its first place in a queue until it is up.
#[derive(Debug)]
pub(crate) struct Sleep {
    bed: Arc<Bed>,
    places: usize,
}

impl Default for Sleep {
    fn default() -> Self {
        Self { bed: Bed::new(true), places: 0 }
    }
}

impl Sleep {
    /// Takes a place, unless `may_sleep` says no.
    pub(crate) fn lie_down(&mut self, on: On, mask: u32, may_sleep: impl FnOnce() -> bool) -> bool {
        with(|kernel| {
            let is_down = may_sleep();
            if is_down {
                let bed = Arc::clone(&self.bed);
                kernel.sleepers.push(Sleeper { on, mask, deadline_ns: u64::MAX, nth: self.places, bed });
                self.places += 1;
            }
            is_down
        })
    }

    /// Sleeps until a wake or an alarm comes, which may have come before.
    pub(crate) fn until_roused(&self) {
        let mut kernel = KERNEL.lock().unwrap();
        while self.bed.end().is_none() && kernel.alarms == 0 {
            kernel = self.bed.condvar.wait(kernel).unwrap();
        }
    }

    /// Gives up its places: no later wake finds it. At which it was woken before that, whatever else roused it.
    pub(crate) fn get_up(self) -> Option<usize> {
        with(|kernel| kernel.sleepers.retain(|sleeper| !Arc::ptr_eq(&sleeper.bed, &self.bed)));
        self.bed.end().map(|(_, nth)| nth)
    }
}

impl Kernel {
    /// Moves the oldest sleeper to the end of another queue, asleep as it is; whether there is one.
    pub(crate) fn move_one(&mut self, from: On, to: On) -> bool {
        let Some(oldest) = self.sleepers.iter().position(|sleeper| sleeper.on == from) else { return false };
        let sleeper = self.sleepers.remove(oldest);
        self.sleepers.push(Sleeper { on: to, ..sleeper });
        true
    }

    /// Interrupts whoever may be.
    pub(crate) fn start_alarm(&mut self) {
        self.alarms += 1;
        for sleeper in self.sleepers.iter().filter(|sleeper| sleeper.bed.is_interruptible) {
            sleeper.bed.condvar.notify_one();
        }
    }
}
