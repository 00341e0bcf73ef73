//! What newer kernels brought beside new opcodes, as a C program sees it through a ring: on the
//! engine and on the kernel's ring.

mod common;

common::oracle::compare! {
    /// Cloned buffers, times in the SQE, notifications, early ends of buffers, registered buffers.
    newer_ops,
}
