//! The NBD server as its clients see it: well-behaved ones, rude ones, and noise.
#![forbid(unsafe_code)]

mod behaviour;
mod client;
mod fuzz;
