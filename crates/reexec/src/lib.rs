//! What `uringlet::init` and `uringlet_init` do: a program looks whether the kernel's io_uring
//! works for it, and executes itself again with `liburinglet.so` if not.
//!
//! ```text
//!   attached?                     yes: Engine
//!   URINGLET, the look            the kernel's ring: Kernel
//!   privileged? threads? again?   an error
//!   liburinglet.so -> memfd       LD_PRELOAD=/proc/self/fd/N before the other entries
//!   execve(own program)           same process, arguments, environment, descriptors
//!     the object attaches, main runs again, and init finds itself attached
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `start` | the steps above |
//! | `environment` | libc's environment, and the one that the program gets |
//! | `library` | where the object is: a memfd, or the file of `URINGLET_LIB` |
//! | `program` | how the program is executed |
//! | `error` | why it could not be done |
#![no_std]

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
extern crate alloc;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod environment;
mod error;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod library;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod program;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod start;

pub use error::InitError;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub use start::init;

/// What answers the program's io_uring calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActiveBackend {
    /// The kernel: its io_uring works for this process, or `URINGLET=kernel` says so.
    Kernel,
    /// The engine: this process is attached.
    Engine,
}

/// Answers [`InitError::Platform`]: there is no engine for this system.
///
/// # Errors
/// Always.
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
pub fn init(_object: Option<&[u8]>) -> Result<ActiveBackend, InitError> {
    Err(InitError::Platform)
}
