//! Devices over NBD: fixed newstyle, structured replies, block status, several connections a device.
//!
//! ```text
//!  server      listens, starts one thread a connection; the FrontEnd
//!  handshake   what a client asks first (pure)        exports   names of devices
//!  reader      the connection's thread: commands in   inbox     bytes from the wire
//!  conn        commands in flight, done()             outbox    replies to the wire
//!  unaligned   commands that do not fit the device's blocks
//!  wire        numbers and headers (pure)
//! ```
//! Clients that ask are told the device's logical block as the smallest size; whoever sends other positions or lengths all the same is
//! served, to the byte, but slowly (see `unaligned`).
//!
//! Differs: all of a device counts as data for block status: a ublk server is never asked what it has, so nobody here can know of holes. No
//! TLS, no extended headers.

mod conn;
mod exports;
mod handshake;
mod inbox;
mod outbox;
mod reader;
mod server;
mod unaligned;
mod wire;

pub use server::{NbdAddress, NbdServer};
