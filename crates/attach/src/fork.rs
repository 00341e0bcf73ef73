//! fork(2): no thread may be inside the engine while the process is copied.
//!
//! libc's fork runs the handlers. A fork by the system call alone goes through [`call`] once the
//! program uses the engine.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering};

use uringlet_core::ENGINE;
use uringlet_sys::linux::general::{CLONE_FILES, CLONE_VFORK, CLONE_VM};
use uringlet_sys::{Sysno, UserPtr, process, user};

use crate::convert::address;
use crate::entry::on_engine_stack;
use crate::exec;
use crate::in_use::is_in_use;
use crate::kernel_call::issue;
use crate::{libc_symbols, stack};

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
    exec::free_all();
    stack::refill_reserve();
    if unlock_heap() {
        on_engine_stack(|| ENGINE.after_fork_in_child());
    }
}

/// fork(2), clone(2) or clone3(2) without libc: its result. `None`: the program makes the call
/// where it is.
pub(crate) fn call(nr: Sysno, args: [usize; 6]) -> Option<isize> {
    if !is_plain_fork(nr, args) {
        return None;
    }
    before_fork();
    let result = issue(nr, args);
    if result == 0 {
        after_fork_in_child()
    } else {
        after_fork_in_parent()
    }
    Some(result)
}

/// Whether the child gets a copy of the memory and of the descriptors, and returns on the stack
/// that its parent is on. A parent that waits for its child (`CLONE_VFORK`) would wait with all
/// locks held.
fn is_plain_fork(nr: Sysno, args: [usize; 6]) -> bool {
    const SHARED: usize = (CLONE_VM | CLONE_VFORK | CLONE_FILES) as usize;
    let (flags, stack) = match nr {
        Sysno::clone => (args[0], args[1]),
        Sysno::clone3 => match clone3_flags_and_stack(args) {
            Some(pair) => pair,
            None => return false,
        },
        _ => (0, 0),
    };
    flags & SHARED == 0 && stack == 0
}

/// Of the `struct clone_args` at the first argument, whose size is the second.
fn clone3_flags_and_stack([at, size, ..]: [usize; 6]) -> Option<(usize, usize)> {
    /// The first version of the structure: flags come first, the stack is the sixth word.
    const WORDS: usize = 8;
    const STACK: usize = 5;
    let mut words = [0_u64; WORDS];
    if size < size_of_val(&words) {
        return None;
    }
    user::read_slice(&mut words, UserPtr::new(at)).ok()?;
    Some((address(words[0]), address(words[STACK])))
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
