//! The broker: a process that plays the kernel's part for ublk devices. It has their numbers, parameters, tags and front ends;
//! servers come and go.
//!
//! ```text
//!  place     the folder where its sockets are            client    the other end of the wire, for the command line
//!  broker    listens; one thread a connection            serve     our own servers: null, memory, a file
//!  channel   an open char device: commands, completions
//!  watch     clients that hang up while their command waits
//!  surroundings  what the driver needs of this process
//! ```
//! The wire is described in the driver's WIRE.md.
//!
//! What dies with a broker that is killed: its devices, and what was in flight. Servers see the end of their connection and end, or, under
//! `uringlet run`, get -ENODEV; the folder's lock is free, sockets are replaced, and the next broker ends what is left of block devices.
//! Nothing that a server has acknowledged after a flush is lost: it is the server's. A filesystem that was mounted has had a power cut.
#![forbid(unsafe_code)]

pub mod broker;
mod channel;
pub mod client;
mod control_payload;
mod hangup;
mod packets;
pub mod runtime_dir;
mod shared_buffers;
mod sync;
