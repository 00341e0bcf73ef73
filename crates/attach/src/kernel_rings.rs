//! Rings of the kernel's that `uringlet trace --kernel` looks at.

use uringlet_core::kernel_trace;
use uringlet_sys::process;

use crate::backend::is_kernel_traced;
use crate::entry::on_engine_stack;

/// Before the process ends or executes another program.
pub(crate) fn look() {
    // A vfork child has its parent's.
    if is_kernel_traced() && !process::is_foreign() {
        on_engine_stack(kernel_trace::look);
    }
}

/// Whether the number is that of such a ring.
pub(crate) fn is_ring(fd: i32) -> bool {
    is_kernel_traced() && on_engine_stack(|| kernel_trace::is_ring(fd))
}
