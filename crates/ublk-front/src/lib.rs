//! Front ends: how the world reads and writes ublk devices.
//!
//! ```text
//!  nbd      an NBD server over unix sockets, or TCP on loopback: needs no rights, many clients know it
//!  block    a block device of the kernel, for root: a file of our own (FUSE), a loop device on it, /dev/ublkbN
//!  embedded a device whose server is this process: driver and front ends without a broker
//!  ram      a device in memory, without a server: for tests of front ends
//!  sparse   sparse memory that a device can keep its bytes in
//! ```
#![forbid(unsafe_code)]

pub mod block;
mod io_cookie;
pub mod nbd;
mod sync;
