//! fork(2): no thread may be inside the engine while the process is copied.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering};

use uringlet::ENGINE;
use uringlet_sys::process;

use crate::entry::on_engine_stack;
use crate::in_use::is_in_use;
use crate::libc_symbols;

#[cfg(not(test))]
pub(crate) use crate::FREESTANDING_HEAP as HEAP;
#[cfg(test)]
pub(crate) static HEAP: uringlet_sys::heap::Heap = uringlet_sys::heap::Heap::new();

/// Whether the fork that holds the heap's lock has locked the engine as well.
static HAS_LOCKED_ENGINE: AtomicBool = AtomicBool::new(false);

// The heap's lock is the innermost: taken last, released first.
extern "C" fn before_fork() {
    if is_in_use() {
        // In a copy that no handler has seen, a thread of the parent may have locked the heap.
        let _ = on_engine_stack(|| ENGINE.own());
    }
    HEAP.lock_for_fork();
    let is_in_use = is_in_use();
    if is_in_use {
        HEAP.unlock_after_fork();
        on_engine_stack(|| ENGINE.before_fork());
        HEAP.lock_for_fork();
    }
    HAS_LOCKED_ENGINE.store(is_in_use, Ordering::Relaxed);
}

/// Unlocks the heap. Whether the engine is locked, too.
fn unlock_heap() -> bool {
    let has_locked_engine = HAS_LOCKED_ENGINE.load(Ordering::Relaxed);
    HEAP.unlock_after_fork();
    has_locked_engine
}

extern "C" fn after_fork_in_parent() {
    if unlock_heap() {
        on_engine_stack(|| ENGINE.after_fork_in_parent());
    }
}

extern "C" fn after_fork_in_child() {
    process::disown();
    if unlock_heap() {
        on_engine_stack(|| ENGINE.after_fork_in_child());
    }
}

type ForkHandler = extern "C" fn();

/// Registers the fork handlers by the function that this libc has.
pub(crate) fn register_handlers() {
    let registered = libc_symbols::address_of(c"__register_atfork");
    if registered != 0 {
        // SAFETY: glibc's signature; a null handle means the program itself, which is never
        // unloaded.
        unsafe {
            let register: unsafe extern "C" fn(ForkHandler, ForkHandler, ForkHandler, *mut c_void) -> c_int =
                core::mem::transmute(registered);
            register(before_fork, after_fork_in_parent, after_fork_in_child, core::ptr::null_mut());
        }
        return;
    }
    let registered = libc_symbols::address_of(c"pthread_atfork");
    if registered != 0 {
        // SAFETY: POSIX's signature.
        unsafe {
            let register: unsafe extern "C" fn(ForkHandler, ForkHandler, ForkHandler) -> c_int = core::mem::transmute(registered);
            register(before_fork, after_fork_in_parent, after_fork_in_child);
        }
    }
}
