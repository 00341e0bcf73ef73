//! Whether the engine answers this process, or the kernel's io_uring (`URINGLET`): decided when it
//! first asks for a ring, and inherited by forked children.
//!
//! A variable with a wrong value is ignored, and one line on standard error says so.

use core::ffi::CStr;
use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering::{Acquire, Release};

use uringlet_core::variables::complaint;
use uringlet_core::{AsyncHint, ENGINE, WriteMode};
use uringlet_sys::kernel_ring::{self, AskIn};
use uringlet_sys::passthrough::write_stderr;
use uringlet_sys::ring_backend::RingBackend;

use crate::weak;

const UNDECIDED: u8 = 0;
const KERNEL: u8 = 1;
const ENGINE_CHOSEN: u8 = 2;

static CHOICE: AtomicU8 = AtomicU8::new(UNDECIDED);

/// Whether the calls of this process are the kernel's.
#[inline]
pub(crate) fn is_kernel() -> bool {
    match CHOICE.load(Acquire) {
        UNDECIDED => choose(),
        choice => choice == KERNEL,
    }
}

/// Two threads may decide at once: both come to the same.
#[cold]
fn choose() -> bool {
    let is_kernel = match value(c"URINGLET", RingBackend::named).unwrap_or_default() {
        RingBackend::Kernel | RingBackend::KernelTraced => true,
        RingBackend::Engine => false,
        RingBackend::WhenBlocked => kernel_ring::works(AskIn::Copy),
    };
    if !is_kernel {
        value(c"URINGLET_MODE", WriteMode::named).into_iter().for_each(|mode| ENGINE.set_mode(mode));
        value(c"URINGLET_IOSQE_ASYNC", AsyncHint::named).into_iter().for_each(|hint| ENGINE.set_async_hint(hint));
    }
    CHOICE.store(if is_kernel { KERNEL } else { ENGINE_CHOSEN }, Release);
    is_kernel
}

/// What a variable says. A program that has gained privileges has no variables.
fn value<T>(name: &CStr, named: impl FnOnce(&[u8]) -> Option<T>) -> Option<T> {
    let text = weak::variable(name)?;
    if let Some(line) = complaint(core::iter::once((name.to_bytes(), text))) {
        write_stderr(line.as_bytes());
    }
    named(text)
}
