//! Whether the program shall be attached: `--when-blocked` and the variable `URINGLET`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use uringlet_sys::kernel_ring::{self, AskIn};
use uringlet_sys::ring_backend::RingBackend;

use super::error::RunError;

/// The variable. An attached program finds it unset, so that its children are attached, too.
pub(super) const VARIABLE: &str = RingBackend::VARIABLE;

/// Whether the program is to be executed as without uringlet.
pub(super) fn is_kernel(when_blocked: bool) -> Result<bool, RunError> {
    let wanted = match std::env::var_os(VARIABLE) {
        _ if when_blocked => RingBackend::WhenBlocked,
        Some(name) if !name.is_empty() => named(&name)?,
        _ => RingBackend::Engine,
    };
    Ok(match wanted {
        RingBackend::Kernel => true,
        RingBackend::Engine | RingBackend::KernelTraced => false,
        RingBackend::WhenBlocked => kernel_ring::works(AskIn::ThisProcess),
    })
}

/// Whether the program is attached for `uringlet trace --kernel` alone; so are its children.
pub(super) fn is_kernel_traced() -> bool {
    std::env::var_os(VARIABLE).is_some_and(|name| name == RingBackend::NAME_KERNEL_TRACED)
}

fn named(name: &OsStr) -> Result<RingBackend, RunError> {
    let wrong = || format!("{VARIABLE}={} is none of {}", name.display(), RingBackend::NAMES.join(", "));
    RingBackend::named(name.as_bytes()).ok_or_else(|| RunError::wrong_variable(format_args!("{}", wrong())))
}
