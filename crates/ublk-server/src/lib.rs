//! ublk servers: the processes that execute a device's requests.
//!
//! ```text
//!  sync_server   threads that copy the data (USER_COPY)     device      adding a device
//!  async_server  tokio tasks, with any kind of buffer       buffers     where a request's data lies
//!  embedded      driver, server, front ends in one process  backing     null, memory or a file
//!  backend       what executes an async server's requests   volume      a named backing store
//!  backing_file  files and disks, locked                    sparse      sparse memory
//!  ram_device    a block device without a server, for       device_map  front end: devices by number
//!                tests of front ends
//! ```
//! ## Buffers
//! | | a WRITE | a READ |
//! |---|---|---|
//! | on demand (NEED_GET_DATA) | the driver announces it; the server allocates the message's memory; the driver copies there | the driver copies from the reply's memory |
//! | pre-allocated | the driver copies to the tag's buffer; the server copies to the message | the server copies to the tag's buffer; the driver copies from there |
//! | user copy | the server allocates the message's memory and copies there | the server copies from the reply's memory |
#![forbid(unsafe_code)]

pub mod async_server;
pub mod backend;
pub mod backing;
pub mod backing_file;
pub mod buffers;
pub mod device;
pub mod device_map;
pub mod embedded;
mod errno;
pub mod ram_device;
pub mod sparse;
mod sync;
pub mod sync_server;
pub mod volume;
