//! Libraries that are loaded later: `dlopen` is noticed at the dynamic linker's `r_brk`, the
//! function that it calls for debuggers each time its list of objects has changed.
//!
//! `dlopen` itself must not be wrapped: it searches by its caller's RUNPATH. glibc calls `r_brk`
//! after it has mapped the new objects and before their constructors run, with its lock held.

use crate::arch::r_brk_entry;
use crate::link_map::set_r_debug;
use crate::rewrite::{self, LoadedObject};

/// Puts the hook into the dynamic linker: at the function, or at its calls where the function's
/// code is not what is expected, because a debugger has put a breakpoint there.
pub(crate) fn install(objects: &[LoadedObject]) -> bool {
    let Some(address) = rewrite::r_debug_address(objects) else { return false };
    // SAFETY: DT_DEBUG or the symbol `_r_debug` gave the address of the linker's own structure.
    let breakpoint = unsafe { set_r_debug(address) };
    let entry = r_brk_entry as *const () as usize;
    rewrite::hook_empty_function(objects, breakpoint, entry) || rewrite::hook_calls(objects, breakpoint, entry)
}
