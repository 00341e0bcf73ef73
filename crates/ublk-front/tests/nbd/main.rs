//! The NBD server as its clients see it: regular, misbehaving and random ones.
#![forbid(unsafe_code)]

mod behaviour;
mod client;
mod fuzz;
