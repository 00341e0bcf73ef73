//! `liburinglet.a`: `uringlet::init` for C programs. `uringlet.h` describes the functions.
//!
//! Of libc it uses `environ` alone.
#![no_std]

#[cfg(not(panic = "abort"))]
compile_error!("liburinglet.a must not unwind into C: build it with panic = \"abort\"");

use core::ffi::{CStr, c_char, c_int};

use uringlet_reexec::{ActiveBackend, InitError, init};

uringlet_sys::freestanding!("liburinglet.a");

/// What `uringlet_init` returns: the kernel's io_uring works.
const KERNEL: c_int = 0;
/// The engine answers io_uring calls.
const ENGINE: c_int = 1;

/// 0, 1, or a negative error number.
#[unsafe(no_mangle)]
pub extern "C" fn uringlet_init() -> c_int {
    match init(uringlet_object::OBJECT) {
        Ok(ActiveBackend::Kernel) => KERNEL,
        Ok(ActiveBackend::Engine) => ENGINE,
        Err(error) => -error.code(),
    }
}

/// The text of what `uringlet_init` returned.
#[unsafe(no_mangle)]
pub extern "C" fn uringlet_strerror(result: c_int) -> *const c_char {
    let text = match result {
        KERNEL => c"the kernel's io_uring works",
        ENGINE => c"the engine answers io_uring calls",
        error => error.checked_neg().and_then(InitError::text_of).unwrap_or(c"unknown error of uringlet"),
    };
    text.as_ptr()
}

/// The version of this archive, `MAJOR.MINOR.PATCH`.
#[unsafe(no_mangle)]
pub extern "C" fn uringlet_version() -> *const c_char {
    const TEXT: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    const VERSION: &CStr = match CStr::from_bytes_with_nul(TEXT.as_bytes()) {
        Ok(version) => version,
        Err(_) => c"",
    };
    VERSION.as_ptr()
}
