//! A ublk server whose blocks are elsewhere: the use that UBLK_F_NEED_GET_DATA was made for. Its RPC framework makes the memory
//! of a message, and a WRITE's data should come right there.
//!
//! ```text
//!  serve     a ublk device: requests come, tasks serve them       backend   what can stand behind a device
//!  buffers   where a request's data lies, and when                remote    a backend: the store, over gRPC
//!  store     the store itself: a volume behind gRPC               link      the connection to it: sessions, loss, reconnection
//!  volume    what a store keeps                                   gate      the store's side of sessions
//!  messages, frames, call, status   the wire: proto/blockstore.proto
//! ```
//! ## BufferMode
//! | | a WRITE | a READ |
//! |---|---|---|
//! | on demand (NEED_GET_DATA) | the driver says that there is one; the message's memory is allocated; the driver copies there | the answer's memory is what the driver copies from |
//! | pre-allocated | the driver copies to the tag's buffer; the server copies to the message | the server copies to the tag's buffer; the driver copies from there |
//! | user copy | the message's memory is allocated; the server copies there itself | the server copies from the answer's memory |
//!
//! ## A store that goes away
//! Requests wait for it, for a bounded time: it may be restarted, and an error that comes too early turns a mounted filesystem
//! read-only for good. A request whose answer is not known is sent again in a new session. Behind the time, EIO; a store that
//! was away as long fails requests at once, until it is back. One that comes back with another volume (memory, say) is none:
//! the device's content would have changed under its user.
#![forbid(unsafe_code)]

mod call;
mod codec;
mod connection;
mod endpoint;
mod http2;
pub mod listen;
mod messages;
pub mod remote;
mod session;
mod status;
pub mod store;
#[cfg(test)]
mod tests;

pub use endpoint::StoreEndpoint;
pub use messages::IO_MAX;
