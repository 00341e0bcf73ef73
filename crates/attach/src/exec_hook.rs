//! Children are attached as well: a child whose environment has lost LD_PRELOAD gets it back at its
//! execve(2).
//!
//! The hook is at the system call inside libc's `execve`, which `execv`, `posix_spawn`, `system`
//! and `popen` reach by calls that no exported symbol intercepts.
//!
//! A child that cannot be attached (static, set-uid) loses nothing: its dynamic linker ignores the
//! variable, or there is none.

use crate::arch::exec_entry;
use crate::convert::address;
use crate::exec_env::set_preload_path;
use crate::libc_symbols;
use crate::rewrite::{self, LoadedObject};
use crate::safe_read;

/// Puts the hook into libc. False: children that lose LD_PRELOAD will not be attached.
pub(crate) fn install(objects: &[LoadedObject]) -> bool {
    // A relative path means something else in the child.
    let Some(path) = rewrite::own_path(objects).filter(|path| path.starts_with(b"/")) else { return false };
    // Kept for the life of the process.
    set_preload_path(path.leak());
    if let Some(program) = objects.first() {
        safe_read::set_program_start(address(program.span().start));
    }
    let functions = [c"execve", c"execveat", c"fexecve"].map(libc_symbols::address_of);
    rewrite::hook_exec_calls(objects, &functions, exec_entry as *const () as usize)
}
