//! Atomics and fences of the protocols that are model-checked: the processor's, or with `--cfg
//! loom` the model checker's.

#[cfg(not(loom))]
use crate::linux::general::membarrier_cmd;

#[cfg(loom)]
pub use crate::model::checker::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// The light side of an asymmetric fence between a store and a load: only a compiler fence, which
/// becomes a full one when another thread runs [`fence_heavy`]. A full fence in models, which have
/// no asymmetric ones.
#[inline(always)]
pub(crate) fn fence_light() {
    #[cfg(not(loom))]
    core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
    #[cfg(loom)]
    crate::model::checker::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}

/// The heavy side of an asymmetric fence: every thread of every process has executed a full fence
/// when this returns.
#[cfg(not(loom))]
pub(crate) fn fence_heavy() {
    // SAFETY: no addresses.
    let r = unsafe { syscalls::raw_syscall!(syscalls::Sysno::membarrier, membarrier_cmd::MEMBARRIER_CMD_GLOBAL as u32, 0, 0) };
    if r != 0 {
        // No membarrier(2): a store becomes visible within microseconds, so wait longer than that.
        crate::process::sleep_ns(1_000_000);
    }
}

/// The heavy side of [`fence_light`].
#[cfg(loom)]
pub(crate) fn fence_heavy() {
    crate::model::checker::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}

/// A model may run another thread here: for facts in atomics that are not the model checker's.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) fn switch_point() {}

/// As above.
#[cfg(loom)]
pub(crate) fn switch_point() {
    crate::model::switch_point();
}

/// Declares a constructor that is `const`, except under loom, which registers its atomics when a
/// model runs.
#[macro_export]
macro_rules! const_unless_loom {
    ($(#[$attribute:meta])* $visibility:vis fn $($rest:tt)*) => {
        #[cfg(not(loom))]
        $(#[$attribute])* $visibility const fn $($rest)*
        #[cfg(loom)]
        $(#[$attribute])* $visibility fn $($rest)*
    };
}
