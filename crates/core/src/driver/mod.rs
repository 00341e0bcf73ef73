//! The threads that make a ring progress: those of the program inside enter(), io-wq's workers, and
//! the watcher when no thread is inside enter().
//!
//! ```text
//!   enter                             io_uring_enter(2)
//!   worker: hybrid, sleeper; command  completions by workers and by virtual files
//!   leave                             what a thread does when it leaves a ring
//!   watcher                           rings that no thread drives
//!   closing                           the end of a ring
//!   events                            the event loop
//! ```

pub(crate) mod closing;
pub(crate) mod command;
pub(crate) mod enter;
mod events;
mod hybrid;
pub(crate) mod leave;
#[cfg(all(test, loom))]
pub(crate) mod model;
mod sleeper;
pub(crate) mod watcher;
mod worker;
