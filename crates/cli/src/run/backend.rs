//! Whether the program shall be attached: `--when-blocked` and the variable `URINGLET`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::ValueEnum;
use uringlet_sys::kernel_ring::{self, AskIn};

use super::error::RunError;

/// The variable. An attached program finds it unset, so that its children are attached, too.
pub(super) const VARIABLE: &str = "URINGLET";

/// What shall answer the program's io_uring calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WantedBackend {
    Kernel,
    Engine,
    WhenBlocked,
}

/// Whether the program is to be executed as without uringlet.
pub(super) fn is_kernel(when_blocked: bool) -> Result<bool, RunError> {
    let wanted = match std::env::var_os(VARIABLE) {
        _ if when_blocked => WantedBackend::WhenBlocked,
        Some(name) if !name.is_empty() => named(&name)?,
        _ => WantedBackend::Engine,
    };
    Ok(match wanted {
        WantedBackend::Kernel => true,
        WantedBackend::Engine => false,
        WantedBackend::WhenBlocked => kernel_ring::works(AskIn::ThisProcess),
    })
}

fn named(name: &OsString) -> Result<WantedBackend, RunError> {
    let text = String::from_utf8_lossy(name.as_bytes());
    WantedBackend::from_str(&text, false)
        .map_err(|_| RunError::wrong_variable(format_args!("{VARIABLE}={text} is none of kernel, engine, when-blocked")))
}
