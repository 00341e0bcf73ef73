//! Settings of polling that are checked and told, and have no effect: on the engine and on the
//! kernel's ring.

mod common;

common::oracle::compare! {
    /// IORING_REGISTER_NAPI, IORING_SETUP_HYBRID_IOPOLL.
    polls,
}
