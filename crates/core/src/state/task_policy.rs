//! Restrictions and filters of all rings that the process makes from now on
//! (`IORING_REGISTER_RESTRICTIONS` and `IORING_REGISTER_BPF_FILTER` without a ring). A forked child
//! inherits them, as it does all memory.
//!
//! Differs: in the kernel they are the calling thread's and those that it starts.

use super::{Filters, Restrictions};
use alloc::sync::Arc;
use uringlet_sys::lock::Mutex;

#[cfg(not(loom))]
static POLICY: Mutex<Option<Arc<TaskPolicy>>> = Mutex::new(None);

#[cfg(loom)]
loom::lazy_static! {
    static ref POLICY: Mutex<Option<Arc<TaskPolicy>>> = Mutex::new(None);
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct TaskPolicy {
    pub(crate) restrictions: Option<Restrictions>,
    pub(crate) filters: Filters,
}

/// What a new ring begins with.
pub(crate) fn current() -> TaskPolicy {
    POLICY.lock().as_deref().cloned().unwrap_or_default()
}

/// Changes what the next rings begin with.
pub(crate) fn change<T>(change: impl FnOnce(&mut TaskPolicy) -> T) -> T {
    let mut policy = POLICY.lock();
    let mut changed = policy.as_deref().cloned().unwrap_or_default();
    let result = change(&mut changed);
    // One word: a copy of the process has the old one or the new one.
    *policy = Some(Arc::new(changed));
    result
}

/// For fork(2): keeps all other threads out.
pub(crate) fn lock_for_fork() {
    POLICY.lock_for_fork();
}

/// After fork(2), in parent and child.
pub(crate) fn unlock_after_fork() {
    POLICY.unlock_after_fork();
}

/// In a copy of a process: a thread that the copy does not have may have been changing it. What is
/// there is whole.
pub(crate) fn recover_in_copy() {
    POLICY.recover_in_copy(|torn| torn);
}
