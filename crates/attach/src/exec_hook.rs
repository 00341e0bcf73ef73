//! The hook inside libc: the system calls of its exec functions are rewritten sites then.
//!
//! The interposed functions prepare most calls themselves. Where libc starts a program on its own
//! (`posix_spawn`, `system`, `popen`, `execl`) no symbol intercepts that. The hook is put there
//! when such a call has to be changed: this takes longer than the rest of a program's start.

use alloc::boxed::Box;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::arch::site_entry;
use crate::convert::address;
use crate::entry::on_engine_stack;
use crate::exec::set_library_path;
use crate::rewrite::{self, LoadedObject};
use crate::{explain, libc_symbols, safe_read};

/// libc, until the hook is there.
static LIBC: AtomicPtr<LoadedObject> = AtomicPtr::new(null_mut());

/// Keeps what a child's environment and the hook need.
pub(crate) fn prepare(objects: &[LoadedObject]) {
    let Some(path) = rewrite::own_path(objects) else { return };
    set_library_path(&path);
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
        if !rewrite::hook_exec_calls(&libc, &functions, site_entry as *const () as usize) {
            explain::line(|| "programs that libc starts by itself will not be attached: its execve looks unfamiliar".into());
        }
    });
}
