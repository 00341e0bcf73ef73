//! The ublk driver in user space: see README.md.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod actions;
pub mod control;
mod device;
pub mod exchange;
pub mod frontend;
#[cfg(feature = "engine")]
pub mod in_process;
pub mod local;
mod params;
pub mod patience;
pub mod platform;
mod queue;
#[cfg(feature = "engine")]
pub mod remote;
mod status;
mod tag;
#[cfg(test)]
mod tests;
pub mod wire;

pub use control::Driver;
pub use device::Device;
pub use status::client_errno;
