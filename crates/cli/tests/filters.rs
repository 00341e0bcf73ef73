//! System call filters, and what the engine's own system calls do to others: record locks and
//! notifications. Each program states the answers of the kernel's ring and runs on both.

mod common;

use common::oracle::compare;

compare! {
    /// The program's record locks stay when a ring lets go of a file.
    filters_locks,
}
