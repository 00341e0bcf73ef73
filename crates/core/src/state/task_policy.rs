//! Restrictions and filters of all rings that the process makes from now on
//! (`IORING_REGISTER_RESTRICTIONS` and `IORING_REGISTER_BPF_FILTER` without a ring). A forked child
//! inherits them, as it does all memory; a program that is executed gets them as text, if its
//! starter is attached.
//!
//! Differs: in the kernel they are the calling thread's and those that it starts.

use super::policy_text::{self, TaskPolicy};
use super::{Filters, Restrictions};
use alloc::string::String;
use alloc::sync::Arc;
use uringlet_sys::lock::Mutex;

#[cfg(not(loom))]
static POLICY: Mutex<Registered> = Mutex::new(Registered { policy: None, announce: None });

#[cfg(loom)]
loom::lazy_static! {
    static ref POLICY: Mutex<Registered> = Mutex::new(Registered { policy: None, announce: None });
}

struct Registered {
    policy: Option<Arc<TaskPolicy>>,
    /// Is told of each change, with the policy as text.
    announce: Option<fn(&str)>,
}

/// What a new ring begins with.
pub(crate) fn current() -> TaskPolicy {
    POLICY.lock().policy.as_deref().cloned().unwrap_or_default()
}

/// Each change is announced from now on.
pub(crate) fn announce_changes(announce: fn(&str)) {
    POLICY.lock().announce = Some(announce);
}

/// Takes over what the starter of this program has handed on. Damaged text allows nothing.
pub(crate) fn inherit(text: &[u8]) {
    let nothing = || TaskPolicy { restrictions: Some(Restrictions::default()), filters: Filters::default() };
    let policy = policy_text::read(text).unwrap_or_else(nothing);
    change(|own| *own = policy);
}

/// Changes what the next rings begin with.
pub(crate) fn change<T>(change: impl FnOnce(&mut TaskPolicy) -> T) -> T {
    let mut registered = POLICY.lock();
    let mut changed = registered.policy.as_deref().cloned().unwrap_or_default();
    let result = change(&mut changed);
    if let Some(announce) = registered.announce {
        let mut text = String::new();
        policy_text::write(&changed, &mut text);
        announce(&text);
    }
    // One word: a copy of the process has the old one or the new one.
    registered.policy = Some(Arc::new(changed));
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
