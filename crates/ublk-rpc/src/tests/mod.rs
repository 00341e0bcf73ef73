//! The wire, against independent implementations.

mod proto;
mod wire;
