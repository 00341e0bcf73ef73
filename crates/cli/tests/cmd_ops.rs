//! Commands to files (URING_CMD), as a C program sees them through a ring: on the engine and on the
//! kernel's ring.

mod common;

common::oracle::compare! {
    /// Commands to sockets, block devices and other files.
    cmd_ops,
}
