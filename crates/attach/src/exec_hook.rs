//! Children are attached as well: a child whose environment has lost LD_PRELOAD gets it back at its
//! execve(2). Mostly the interposed functions do that (`symbols::exec`).
//!
//! Where libc starts a program with its own environment (`system`, `popen`, `execl`) and that has
//! lost the variable, the hook is at the system call inside libc's `execve`, which these functions
//! reach by calls that no exported symbol intercepts. It is put there when it is needed first: this
//! takes longer than the rest of a program's start.
//!
//! A child that cannot be attached (static, set-uid) loses nothing: its dynamic linker ignores the
//! variable, or there is none.

use alloc::boxed::Box;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::arch::exec_entry;
use crate::convert::address;
use crate::entry::on_engine_stack;
use crate::exec_env::set_preload_path;
use crate::rewrite::{self, LoadedObject};
use crate::{explain, libc_symbols, safe_read};

/// libc, until the hook is there.
static LIBC: AtomicPtr<LoadedObject> = AtomicPtr::new(null_mut());

/// Keeps what a child's environment and the hook need.
pub(crate) fn prepare(objects: &[LoadedObject]) {
    // A relative path means something else in the child.
    let Some(path) = rewrite::own_path(objects).filter(|path| path.starts_with(b"/")) else { return };
    // Kept for the life of the process.
    set_preload_path(path.leak());
    if let Some(program) = objects.first() {
        safe_read::set_program_start(address(program.span().start));
    }
    if let Some(libc) = rewrite::libc_of(objects) {
        LIBC.store(Box::into_raw(Box::new(libc.clone())), Ordering::Release);
    }
}

/// Puts the hook into libc, once.
pub(crate) fn install() {
    let libc = LIBC.swap(null_mut(), Ordering::AcqRel);
    if libc.is_null() {
        return;
    }
    on_engine_stack(|| {
        let functions = [c"execve", c"execveat", c"fexecve"].map(libc_symbols::address_of);
        // SAFETY: `prepare` made it, and no other thread has got it.
        let libc = unsafe { Box::from_raw(libc) };
        if !rewrite::hook_exec_calls(&libc, &functions, exec_entry as *const () as usize) {
            explain::line(|| "children whose environment loses LD_PRELOAD will not be attached: libc's execve looks unfamiliar".into());
        }
    });
}
