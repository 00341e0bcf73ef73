//! The atomics and fences of whatever protocol is model-checked: the processor's, or, with `--cfg loom`, the model
//! checker's.

#[cfg(loom)]
pub use crate::model::checker::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// Half of a fence between a store and a load: whole once another thread has run [`fence_heavy`], and free of cost until
/// then. A model, which knows no such thing, has a whole one.
#[inline(always)]
pub(crate) fn fence_light() {
    #[cfg(not(loom))]
    core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
    #[cfg(loom)]
    crate::model::checker::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}

/// Every thread of every process has passed a full fence when this returns.
#[cfg(not(loom))]
pub(crate) fn fence_heavy() {
    const MEMBARRIER_CMD_GLOBAL: usize = 1;
    // SAFETY: no addresses.
    let r = unsafe { syscalls::raw_syscall!(syscalls::Sysno::membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) };
    if r != 0 {
        // A store leaves the processor within microseconds.
        crate::process::sleep_ns(1_000_000);
    }
}

/// The other half of [`fence_light`].
#[cfg(loom)]
pub(crate) fn fence_heavy() {
    crate::model::checker::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}

/// A constructor that is `const`, except under loom, which numbers its atomics when a model runs.
#[macro_export]
macro_rules! const_unless_loom {
    ($(#[$attribute:meta])* $visibility:vis fn $($rest:tt)*) => {
        #[cfg(not(loom))]
        $(#[$attribute])* $visibility const fn $($rest)*
        #[cfg(loom)]
        $(#[$attribute])* $visibility fn $($rest)*
    };
}
