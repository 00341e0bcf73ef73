//! What each bit of `features` promises, as a C program sees it: on the engine and on the kernel's
//! ring.

mod common;

common::oracle::compare! {
    /// One part for each bit that has no test of its own elsewhere.
    features,
}
