//! The variable by which a program that is executed gets the restrictions and filters of its
//! starter.

use alloc::format;
use alloc::vec::Vec;
use core::ffi::CStr;
use core::sync::atomic::{AtomicPtr, Ordering};

use uringlet_core::ENGINE;

use crate::environ;

/// Its name, and what stands between that and the value.
pub(super) const PREFIX: &str = "URINGLET_TASK_POLICY=";

/// The variable, which lives as long as the process; null: there is no policy.
static VARIABLE: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());

/// Takes over the starter's policy.
pub(crate) fn inherit() {
    ENGINE.announce_task_policy(set);
    if let Some(text) = environ::variable(PREFIX.trim_end_matches('=')) {
        ENGINE.inherit_task_policy(text);
    }
}

/// The former one stays as well: another thread may be executing a program with it.
fn set(text: &str) {
    let variable: Vec<u8> = format!("{PREFIX}{text}\0").into_bytes();
    VARIABLE.store(variable.leak().as_mut_ptr(), Ordering::Release);
}

/// The variable for a program that is executed.
pub(super) fn variable() -> Option<&'static CStr> {
    let at = VARIABLE.load(Ordering::Acquire);
    // SAFETY: a string with a NUL that lives as long as the process and is not changed.
    (!at.is_null()).then(|| unsafe { CStr::from_ptr(at.cast()) })
}
