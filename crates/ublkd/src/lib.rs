//! The broker: a process that plays the kernel's part for ublk devices. It has their numbers, parameters, tags and front ends;
//! servers come and go.
//!
//! ```text
//!  place     the folder where its sockets are            client    the other end of the wire, for the command line
//!  broker    listens; one thread a connection            serve     our own servers: null, memory, a file
//!  channel   an open char device: commands, completions
//!  surroundings  what the driver needs of this process
//! ```
//! The wire is described in the driver's WIRE.md.
//!
//! `Differs:` a START_DEV whose client has gone keeps its thread until the device is fetched; at most [`broker::CONNECTIONS_MAX`] do.
#![forbid(unsafe_code)]

pub mod broker;
mod channel;
pub mod client;
mod packets;
pub mod place;
pub mod serve;
mod surroundings;
