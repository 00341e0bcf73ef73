//! Restrictions and filters of all rings that the process makes from now on
//! (`IORING_REGISTER_RESTRICTIONS` and `IORING_REGISTER_BPF_FILTER` without a ring). A forked child
//! inherits them, as it does all memory.
//!
//! Differs: in the kernel they are the calling thread's and those that it starts.

use super::{Filters, Restrictions};
use uringlet_sys::lock::Mutex;

#[cfg(not(loom))]
static POLICY: Mutex<TaskPolicy> = Mutex::new(TaskPolicy::new());

#[cfg(loom)]
loom::lazy_static! {
    static ref POLICY: Mutex<TaskPolicy> = Mutex::new(TaskPolicy::new());
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct TaskPolicy {
    pub(crate) restrictions: Option<Restrictions>,
    pub(crate) filters: Filters,
}

impl TaskPolicy {
    const fn new() -> Self {
        Self { restrictions: None, filters: Filters::new() }
    }
}

/// What a new ring begins with.
pub(crate) fn current() -> TaskPolicy {
    POLICY.lock().clone()
}

/// Changes what the next rings begin with.
pub(crate) fn change<T>(change: impl FnOnce(&mut TaskPolicy) -> T) -> T {
    change(&mut POLICY.lock())
}

/// For fork(2): keeps all other threads out.
pub(crate) fn lock_for_fork() {
    POLICY.lock_for_fork();
}

/// After fork(2), in parent and child.
pub(crate) fn unlock_after_fork() {
    POLICY.unlock_after_fork();
}

/// In a copy of a process: a thread that the copy does not have may have been adding something,
/// which it has not been told of yet. What was there before counts.
pub(crate) fn recover_in_copy() {
    POLICY.recover_in_copy(|torn| torn);
}
