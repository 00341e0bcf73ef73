//! The dynamic linker's list of objects, by its interface for debuggers.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::entry::on_engine_stack;
use crate::in_use::is_in_use;
use crate::libc_symbols::{RDebug, are_others_consistent};
use crate::rewrite;

static R_DEBUG: AtomicUsize = AtomicUsize::new(0);

/// Stores the address of the linker's `r_debug` for [`on_list_change`]. Returns the address of the
/// function that the linker calls at each change.
///
/// # Safety
/// `address` is that of the linker's structure.
pub(crate) unsafe fn set_r_debug(address: usize) -> usize {
    R_DEBUG.store(address, Ordering::Relaxed);
    // SAFETY: see above.
    unsafe { (*(address as *const RDebug)).breakpoint }
}

/// A list has changed or is about to.
pub(crate) extern "C" fn on_list_change() {
    let r_debug = R_DEBUG.load(Ordering::Relaxed) as *const RDebug;
    // SAFETY: stored by `set_r_debug`; the linker's structure is never freed. The linker's lock is
    // held, so no other thread writes it now.
    if unsafe { (*r_debug).state } == 0 && are_others_consistent() {
        // Before the first ring there is no engine stack, and the program's is good enough for
        // the linker.
        if is_in_use() { on_engine_stack(rewrite::examine_loaded) } else { rewrite::examine_loaded() }
    }
}
