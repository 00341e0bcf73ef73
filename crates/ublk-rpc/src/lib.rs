//! A backend whose blocks are in a remote store over gRPC, and that store. It is the use case of
//! `UBLK_F_NEED_GET_DATA`: the RPC framework allocates a message, and a WRITE's data is copied
//! right there (`uringlet_ublk_server::buffers`).
//!
//! ```text
//!  remote      the backend: a store over gRPC             store     the store: a volume behind gRPC
//!  connection  sessions, loss, reconnection               session   the store's side of sessions
//!  endpoint    a store's address                          listen    the store's listening socket
//!  messages, codec, call, status, http2   the wire: proto/blockstore.proto
//! ```
//! ## A store that goes away
//! Requests wait for it for a bounded time: it may be restarting, and an early error would turn a
//! mounted filesystem read-only for good. A request whose outcome is unknown is sent again in a new
//! session. After the time-out it fails with EIO. While a store has been away longer than that,
//! requests fail at once. A store that returns with another volume (memory, say) is rejected, as
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

pub use endpoint::{StoreClaim, StoreEndpoint};
pub use messages::IO_MAX;
