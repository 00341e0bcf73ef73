//! Event bits, and the events that stand for no file.

use uringlet_sys::fd::{EPOLLERR, EPOLLHUP};

/// Data of the event of the ring's eventfd.
pub(crate) const WAKE_EVENT: u64 = u64::MAX;
/// Data of the event of the re-check timer.
pub(crate) const RECHECK_EVENT: u64 = u64::MAX - 1;

/// Data of the event of a step of the wall clock.
pub(crate) const CLOCK_EVENT: u64 = u64::MAX - 2;

/// Reported by epoll whether requested or not.
pub(super) const ALWAYS: u32 = EPOLLERR | EPOLLHUP;
pub(super) const EPOLLPRI: u32 = 2;
pub(super) const EPOLLRDHUP: u32 = 0x2000;
