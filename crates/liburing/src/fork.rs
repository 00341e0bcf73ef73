//! fork(2), by libc's own list of handlers.

use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::AcqRel;

use uringlet_core::ENGINE;

use crate::{FREESTANDING_HEAP as HEAP, weak};

static REGISTERED: AtomicBool = AtomicBool::new(false);

// The heap's lock is the innermost: taken last, released first.
extern "C" fn before() {
    ENGINE.before_fork();
    HEAP.lock_for_fork();
}

extern "C" fn in_parent() {
    HEAP.unlock_after_fork();
    ENGINE.after_fork_in_parent();
}

extern "C" fn in_child() {
    HEAP.unlock_after_fork();
    ENGINE.after_fork_in_child();
}

/// Registers the fork handlers, once. They stay valid: the object is linked to stay loaded
/// (`-z nodelete`).
pub(crate) fn register_handlers() {
    if REGISTERED.swap(true, AcqRel) {
        return;
    }
    HEAP.register();
    if let Some(register) = weak::register_atfork() {
        register(before, in_parent, in_child, core::ptr::null());
    } else if let Some(register) = weak::pthread_atfork() {
        register(before, in_parent, in_child);
    }
}
