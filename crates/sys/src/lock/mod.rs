//! Locks on futexes. No libc, no TLS, usable in any program's process.

mod mutex;
mod raw_mutex;
mod timed;

pub use crate::futex::{futex_wait, futex_wake};
pub use mutex::{Mutex, MutexGuard, UnlockedMutex};
pub use raw_mutex::{RawLock, RawMutex};
pub use timed::{LockWaits, TimedLock};
