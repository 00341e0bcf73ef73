//! The ublk driver in user space: see README.md.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod frontend;
pub mod local;
