//! Devices over NBD: fixed newstyle, structured replies, block status, several connections a
//! device.
//!
//! ```text
//!  server      listens, starts one thread a connection; the FrontEnd
//!  handshake   negotiation (pure)                     exports   devices by name
//!  reader      the connection's thread: commands in   inbox     bytes from the socket
//!  conn        commands in flight, done()             outbox    replies to the socket
//!  unaligned   commands not aligned to blocks         wire      numbers and headers (pure)
//! ```
//! Clients that ask are told the device's logical block size as the minimum. Commands with other
//! offsets or lengths are executed to the byte, but slowly (see `unaligned`).
//!
//! Differs: block status reports the whole device as data, as the ublk protocol has no query for
//! holes. No TLS, no extended headers.

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
