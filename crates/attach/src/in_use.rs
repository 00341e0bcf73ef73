//! Whether the program uses the engine. Until it asks for a ring or for a ublk device, each hook is
//! a load and a branch, and the engine makes no system call in the process.
//!
//! The heap's lock is held while this changes, and while the process is forked. So a fork is either
//! of a process that does not use the engine, and the child neither; or it sees the engine's locks
//! as the fork handlers left them.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::fork::HEAP;
use crate::{intercepted, mistakes};

static IS_IN_USE: AtomicBool = AtomicBool::new(false);

/// Whether the program ever asked for a ring or a ublk device.
#[inline]
pub(crate) fn is_in_use() -> bool {
    IS_IN_USE.load(Ordering::Acquire)
}

/// The program is about to use the engine.
pub(crate) fn begin() {
    if is_in_use() {
        return;
    }
    HEAP.lock_for_fork();
    intercepted::intercept_all();
    IS_IN_USE.store(true, Ordering::Release);
    HEAP.unlock_after_fork();
    mistakes::report();
}
