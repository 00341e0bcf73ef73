//! Operations on files, names and descriptors, as a C program sees them through a ring: on the
//! engine and on the kernel's ring.

mod common;

common::oracle::compare! {
    /// Every opcode of files, names and descriptors, with its errors.
    fs_ops,
}
