//! A ring that several processes use: on the engine and on the kernel's ring.

mod common;

common::oracle::compare! {
    /// A ring made before fork(2), used by parent and children.
    shared_ring,
}
