#![doc = include_str!("../README.md")]

#[cfg(feature = "before-main")]
mod before_main;

/// The crate whose SQEs and CQEs a [`Ring`] takes and gives.
#[cfg(all(feature = "ring", target_os = "linux", target_arch = "x86_64"))]
pub use io_uring;
pub use uringlet_reexec::{ActiveBackend, InitError};
#[cfg(all(feature = "ring", target_os = "linux", target_arch = "x86_64"))]
pub use uringlet_ring::{Completions, OpProbe, QueueFull, Ring, RingBackend, RingBuilder, RingError};

/// Makes io_uring work in this program. Call it first in `main`.
///
/// Where the kernel's io_uring works for this process, it returns [`ActiveBackend::Kernel`] and has
/// changed nothing. Where it is blocked, the program is executed again with the engine in it: same
/// process, arguments, environment and descriptors. `main` starts anew there, and this returns
/// [`ActiveBackend::Engine`].
///
/// What the program has done before is lost: memory, text that waits in `stdout`, files that are
/// closed on execve(2).
///
/// # Errors
/// The program could not be attached and goes on as it is: see [`InitError`]. Whether that matters
/// is for the program to say.
pub fn init() -> Result<ActiveBackend, InitError> {
    uringlet_reexec::init(uringlet_object::OBJECT)
}
