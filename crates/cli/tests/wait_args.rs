//! Clocks, regions and registered waits, and messages without a ring, as a C program sees them: on
//! the engine and on the kernel's ring.

mod common;

common::oracle::compare! {
    /// REGISTER_CLOCK, MEM_REGION, EXT_ARG_REG, NO_IOWAIT, SEND_MSG_RING.
    wait_args,
}
