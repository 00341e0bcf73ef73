//! `uringlet::Ring`: a ring for a Rust program that wants the engine without being attached.
//!
//! ```text
//!   attached, or the kernel's ring works     system calls
//!   else                                     liburinglet.so, mapped into this process: a table of
//!                                            functions, a heap and threads of its own
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `builder` | how a ring is made |
//! | `ring` | push, submit, wait, register |
//! | `queues` | the memory of a ring, and the two queues in it |
//! | `backend` | what answers a ring's calls |
//! | `engine` | the engine of this process: loaded once |
//! | `image` | mapping and relocating the object |
//! | `error` | why there is no ring |
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod backend;
mod builder;
mod engine;
mod error;
mod image;
mod queues;
mod ring;

pub use builder::RingBuilder;
pub use error::RingError;
pub use queues::QueueFull;
pub use ring::{Completions, OpProbe, Ring};
pub use uringlet_sys::ring_backend::RingBackend;
