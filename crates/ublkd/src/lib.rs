//! The broker: a process that plays the kernel's part for ublk devices. It owns their numbers,
//! parameters, tags and front ends; servers come and go.
//!
//! ```text
//!  broker       listens; one thread a connection      client           the client side of the wire
//!  channel      an open char device: the server's     hangup           clients that hang up while
//!               commands in, completions out                           their command waits
//!  packets      packets and descriptors               shared_buffers   descriptors and slots
//!  runtime_dir  the directory with its sockets        control_payload  a control command's payload
//! ```
//! The wire is described in the driver's WIRE.md.
//!
//! A killed broker loses the requests in flight. Servers see the end of their connection and bring
//! their devices to the next broker (decision 0051). The kernel releases the directory's lock; the
//! next broker replaces the sockets and removes stale block devices. To a mounted filesystem it is
//! a power cut.
//!
//! Log: `tracing` events with the fields device, queue, tag and pid. Info: the life of devices;
//! warn: lost servers and refused connections; debug: each connection and command.
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
