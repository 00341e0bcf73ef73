//! CQEs of 32 bytes, and every flag of NOP, as a C program sees them through a ring: on the engine
//! and on the kernel's ring.

mod common;

common::oracle::compare! {
    /// CQE32, CQE_MIXED: the second half, fillers at the end of the queue, overflow.
    cqe_ops,
}
