//! SQEs of both sizes, queues that start anew, and QUERY, as a C program sees them through a ring:
//! on the engine and on the kernel's ring.

mod common;

common::oracle::compare! {
    /// SQE_MIXED, SQ_REWIND, NOP128, URING_CMD128, QUERY.
    sqe_sizes,
}
