//! Front ends: how clients read and write ublk devices.
//!
//! ```text
//!  nbd      an NBD server over unix sockets, or TCP on loopback: unprivileged, with many clients
//!  block    a block device of the kernel, for root: a file (FUSE), a loop device on it, /dev/ublkbN
//! ```
#![forbid(unsafe_code)]

pub mod block;
mod io_cookie;
pub mod nbd;
mod sync;
