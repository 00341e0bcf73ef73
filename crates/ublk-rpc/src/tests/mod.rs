//! The wire, as others speak it.

mod proto;
mod wire;
