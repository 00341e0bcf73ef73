//! Replaces `alarm` with `--cfg loom`: counts running alarms, and interrupts waits on the program's
//! futexes. Signals have no other model.

use crate::model;
use syscalls::Errno;

/// An interrupt that repeats until it is dropped.
#[derive(Debug)]
pub struct Alarm(());

impl Alarm {
    /// Interrupts a thread from now on.
    ///
    /// # Errors
    /// None in a model.
    pub fn start(_tid: u32) -> Result<Self, Errno> {
        model::with(model::Kernel::start_alarm);
        Ok(Self(()))
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        model::with(|kernel| kernel.alarms -= 1);
    }
}
