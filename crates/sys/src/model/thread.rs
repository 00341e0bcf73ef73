//! Replaces `thread` with `--cfg loom` by loom's threads. Signals and CPUs have no model.

use crate::model::{self, Over};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use syscalls::Errno;

/// Starts a thread.
///
/// # Errors
/// None in a model.
pub fn spawn(_name: &str, main: impl FnOnce() + Send + 'static) -> Result<(), Errno> {
    let thread = model::checker::thread::spawn(move || match catch_unwind(AssertUnwindSafe(main)) {
        Err(panic) if !panic.is::<Over>() => resume_unwind(panic),
        _ => {}
    });
    model::adopt(thread);
    Ok(())
}

/// Does nothing: in a model only an alarm interrupts, and one follows.
pub fn interrupt(_tid: u32) {}

/// As [`interrupt`].
pub fn accept_interrupts() {}

/// As [`interrupt`].
pub fn install_interrupt_handler() {}

/// A model has no CPUs.
pub fn set_affinity(_tid: u32, _mask: &[u64; 16]) {}

/// A model's threads have one identity.
#[must_use]
pub fn is_program_alone() -> bool {
    true
}

/// No thread of a model is one of the kernel's that a call could meet.
#[must_use]
pub fn count() -> Option<u32> {
    Some(1)
}

/// As [`count`].
#[must_use]
pub fn count_of_engine() -> u32 {
    0
}

/// A model does not fork.
pub fn forget_all() {}

/// Threads of a model are no threads of the kernel.
#[must_use]
pub fn is_alive(_tid: u32) -> bool {
    true
}

/// Whether a thread sleeps in a system call that the model has made.
#[must_use]
pub fn is_in_system_call(tid: u32) -> bool {
    model::with(|kernel| kernel.calls.contains(&tid))
}

/// A thread sleeps in a system call from now on, or no longer.
pub fn set_in_system_call(tid: u32, is_in: bool) {
    model::with(|kernel| if is_in { kernel.calls.insert(tid) } else { kernel.calls.remove(&tid) });
}
