//! Provided buffers: groups from which a read or a receive takes its buffer when the data is there.
//!
//! A group is a list fed by PROVIDE_BUFFERS, or a ring in memory shared with the program
//! (`IORING_REGISTER_PBUF_RING`): the program moves the ring's tail, the engine its head, which is
//! in no shared memory.
//!
//! Ownership of a buffer, and when it leaves the group:
//!
//! ```text
//!   select --> peeked: the group's; only valid under this holding of the ring's lock
//!                |-- mark_used(n), then put: the program's; the head moves (incremental: by n bytes)
//!                |-- put unused: no effect (the try failed, or waits for poll)
//!                +-- commit: the request's alone; the head moves now, since the lock is released next
//!                      |-- mark_used(n): the program's. Buffers of a bundle that hold nothing are
//!                      |   recycled if nothing was selected after them
//!                      +-- put unused: recycled if nothing was selected after it; else the program's,
//!                          without data
//! ```
//!
//! A list's buffer leaves the list when it is selected, and returns to its front when it is unused.
//!
//! A bundle is several consecutive buffers of a ring, selected together and named by the first
//! (`bundle`).

mod bundle;
mod groups;
mod ring;
mod selected;
#[cfg(test)]
mod tests;

pub(crate) use bundle::BundleLimit;
pub(crate) use groups::BufGroups;
pub(crate) use selected::SelectedBuf;
