//! Devices over NBD: fixed newstyle, structured replies, block status, several connections a device.
//!
//! ```text
//!  server      listens, starts one thread a connection; the FrontEnd
//!  handshake   what a client asks first (pure)        exports   names of devices
//!  reader      the connection's thread: commands in   inbox     bytes from the wire
//!  conn        commands in flight, done()             outbox    replies to the wire
//!  wire        numbers and headers (pure)
//! ```
//! Differs: positions and lengths are multiples of the device's logical block (it is told to clients that ask); anything else is EINVAL.
//! All of a device counts as data for block status. No TLS, no extended headers.

mod conn;
mod exports;
mod handshake;
mod inbox;
mod outbox;
mod reader;
mod server;
mod wire;

pub use server::{Address, Server};
