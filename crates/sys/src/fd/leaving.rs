//! Numbers that the engine leaves: its descriptor is about to be closed, or has moved to another
//! number.
//!
//! The program may take any number with dup2(2), and may close any. Between the engine's decision
//! and its close(2) a number belongs to nobody else:
//!
//! ```text
//!   closes its descriptor              the program takes the number
//!   number: LEAVING                    sees that the engine is leaving it: waits
//!   close(2)
//!   number: free                       dup2(2)
//! ```
//!
//! From close(2) on the kernel may give the number to another thread. What that thread notes about
//! it stays; a close of the number waits, and a descriptor of the engine's that gets it waits, too.

use crate::fd_table;
use crate::io;
use crate::process::sleep_ns;
use crate::sync::switch_point;

/// A number that the engine is leaving, until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct LeavingNumber(i32);

impl LeavingNumber {
    /// Begins to leave a number of the engine's. One thread does.
    pub(super) fn begin(number: i32) -> Self {
        fd_table::begin_leaving(number);
        switch_point();
        Self(number)
    }

    /// As `begin`, for one that lingers. `None`: it does not, or another thread
    /// leaves it.
    #[must_use]
    pub fn of_lingering(number: i32) -> Option<Self> {
        fd_table::leave_lingering(number).then(|| Self(number))
    }

    pub(super) fn number(&self) -> i32 {
        self.0
    }

    pub(super) fn close(self) {
        let _ = io::close(self.0);
        switch_point();
    }

    /// The number is to be closed later. Gives it back where the table does not cover it.
    pub(super) fn linger(self) -> Result<(), Self> {
        if !fd_table::set_lingering(self.0) {
            return Err(self);
        }
        core::mem::forget(self);
        Ok(())
    }
}

impl Drop for LeavingNumber {
    fn drop(&mut self) {
        fd_table::end_leaving(self.0);
    }
}

/// Waits until the engine has left a number that it is leaving. One load if it is not.
#[inline]
pub fn wait_until_left(number: i32) {
    switch_point();
    if fd_table::is_leaving(number) {
        wait(number);
    }
}

#[cold]
fn wait(number: i32) {
    const PAUSE_NS: u64 = 20_000;
    /// A second in all: after it a close that sleeps, in a server of its file, has begun and freed
    /// the number.
    const PAUSES: u32 = 50_000;
    for _ in 0..PAUSES {
        if !fd_table::is_leaving(number) {
            return;
        }
        sleep_ns(PAUSE_NS);
    }
}
