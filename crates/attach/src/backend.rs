//! Whether the engine answers the io_uring calls of this process, or the kernel (`URINGLET`).
//!
//! A process that is left to the kernel is as without this object: nothing is rewritten or
//! intercepted, its static children run plainly, and its dynamic ones decide again. The answer
//! "blocked" is inherited: filters are, too, and can only be narrowed.

use core::mem::transmute;
use core::sync::atomic::{AtomicBool, Ordering};

use uringlet_sys::kernel_ring::{self, AskIn};
use uringlet_sys::linux::auxvec::AT_SECURE;
use uringlet_sys::ring_backend::RingBackend;

use crate::{environ, intercepted, libc_symbols};

static IS_KERNEL: AtomicBool = AtomicBool::new(false);
static IS_KERNEL_TRACED: AtomicBool = AtomicBool::new(false);

/// Whether this process is left to the kernel.
pub(crate) fn is_kernel() -> bool {
    IS_KERNEL.load(Ordering::Relaxed)
}

/// Whether this process is attached, its rings are the kernel's, and what goes through them is
/// recorded.
#[inline]
pub(crate) fn is_kernel_traced() -> bool {
    IS_KERNEL_TRACED.load(Ordering::Relaxed)
}

/// Whether the engine answers no call of this process.
pub(crate) fn has_kernels_rings() -> bool {
    is_kernel() || is_kernel_traced()
}

/// Decides at the start. Whether this process is left to the kernel.
pub(crate) fn choose() -> bool {
    let is_kernel = is_secure() || is_second() || is_kernel_wanted();
    if is_kernel {
        intercepted::intercept_nothing();
        IS_KERNEL.store(true, Ordering::Relaxed);
    }
    is_kernel
}

/// Decides the rest, in a process that is attached.
pub(crate) fn prepare() {
    let is_traced = environ::variable(RingBackend::VARIABLE).and_then(RingBackend::named) == Some(RingBackend::KernelTraced);
    IS_KERNEL_TRACED.store(is_traced, Ordering::Relaxed);
}

/// Whether the variable asks for the kernel, or the kernel's ring works and it leaves that to us.
pub(crate) fn is_kernel_wanted() -> bool {
    match environ::variable(RingBackend::VARIABLE).and_then(RingBackend::named).unwrap_or_default() {
        RingBackend::Kernel => true,
        RingBackend::Engine | RingBackend::KernelTraced => false,
        RingBackend::WhenBlocked => {
            let works = kernel_ring::works(AskIn::ThisProcess);
            if !works {
                environ::replace(RingBackend::VARIABLE, b"engine");
            }
            works
        }
    }
}

/// Whether another copy of this object is attached: one that LD_PRELOAD names before this one, or
/// names at all while `/etc/ld.so.preload` names this one. Two would take each other for programs.
fn is_second() -> bool {
    libc_symbols::is_before_ours(c"uringlet_program_entry")
}

/// Whether the program has gained privileges by its execve(2): its environment was chosen by a
/// user with fewer, who must not choose what is done in it.
fn is_secure() -> bool {
    let getauxval = libc_symbols::address_of(c"getauxval");
    if getauxval == 0 {
        return false;
    }
    // SAFETY: getauxval(3) of glibc and musl.
    let getauxval = unsafe { transmute::<usize, extern "C" fn(usize) -> usize>(getauxval) };
    getauxval(AT_SECURE as usize) != 0
}
