//! Arming poll: which requests wait for which file, in one epoll set a ring.
//!
//! A file is registered under its number, edge-triggered, and stays registered: arming costs a
//! system call only when the epoll set must be changed (decision 0013).
//!
//! # Protocol
//! Everything here is under the ring's lock, except that the thread that waits takes events out of
//! the epoll set without it. So an event may be in a thread's hands while others try, arm, cancel:
//!
//! ```text
//!   submitter, worker: one holding of the lock     thread that waits (enter, or the watcher)
//!   ------------------------------------------     -----------------------------------------
//!   lock                                           epoll_wait: takes the edges     (no lock)
//!     try: EAGAIN, or the stream is known empty
//!     arm(TrustEdge): the registration covers      lock
//!       it, so nothing is changed                    on_event: takes the waiters out
//!   unlock                                           each tries again; on EAGAIN arm(TrustEdge)
//!                                                  unlock
//! ```
//!
//! | file becomes ready | edge | effect |
//! |---|---|---|
//! | before the try | old, in the set or in a thread's hands | the try takes the data; `on_event` then fires a later waiter for nothing: it tries again |
//! | after the try, before the arm | new | its `on_event` needs the lock: it comes after the arm, and finds the waiter |
//! | after the arm | new | `on_event` finds the waiter |
//!
//! The second row is why the try and the arm are under the same holding of the lock. A request that
//! was not tried so (or whose "would block" may have another reason) arms with
//! [`Rearm::Recheck`]: EPOLL_CTL_MOD reports as a new edge what already holds.
//!
//! Cancel: `disarm` takes the waiter out. An event in a thread's hands then finds another waiter,
//! or none. Whoever takes the waiter out of the entry owns the request, so each request ends once.
//!
//! An event that no request waits for is *unclaimed*. The first one may precede its request. After
//! the second one in a row the registration ends: the program uses the file in another way.
//!
//! # What is trusted is checked
//! A number that was closed unseen and used again is registered no longer: no edge comes. So a
//! request that waits on trust for longer than `recheck::RECHECK_NS` has its file registered again,
//! once, by one timer a ring, which runs only while there is something to check ([`recheck`]). On a
//! busy server nothing waits that long; an idle one pays one call a request. A registered file is
//! told from a later one of the same number by its node, which lives as long as it is trusted.
//!
//! A registration uses its number ([`uringlet_sys::fd_table::add_user`]), so that a close that is
//! seen takes it out.
//!
//! While a multishot poll is on a file, its registration is not touched after an event: one event,
//! one CQE, as the kernel's wait queue gives it.
//!
//! Checked by `model`.

mod events;
mod fd_map;
mod file;
#[cfg(all(test, loom))]
mod model;
mod poller;
mod readiness;
mod recheck;
#[cfg(all(test, not(loom)))]
mod tests;

pub(crate) use events::{CLOCK_EVENT, RECHECK_EVENT, WAKE_EVENT};
pub(crate) use file::{PollTarget, PollWaiter, Rearm};
pub(crate) use poller::Poller;
