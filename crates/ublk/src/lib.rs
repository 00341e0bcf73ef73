//! The ublk driver in user space: see README.md.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod adaptive_spin;
pub mod blocking;
pub mod control;
mod deferred;
mod device;
pub mod frontend;
#[cfg(feature = "engine")]
pub mod in_process;
pub mod io_channel;
mod params;
pub mod platform;
mod queue;
#[cfg(feature = "engine")]
pub mod remote;
#[cfg(any(feature = "engine", test))]
mod slot_queue;
mod status;
mod tag;
#[cfg(test)]
mod tests;
pub mod wire;

pub use control::Driver;
pub use device::{IoCommand, UblkDevice};
pub use status::client_errno;
