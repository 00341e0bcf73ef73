//! Dirty throttling: when a buffered write may be issued, so that no thread of the ring sleeps for
//! it in balance_dirty_pages.
//!
//! The kernel lets writers run free up to a ceiling, half-way between the background threshold and
//! the limit of dirty pages. Above it each writer sleeps after a number of pages, so that all
//! writers together dirty as much as the disks take. Here a write that would have to sleep is not
//! issued: the ring keeps it until a deadline, and its submitter goes on.
//!
//! ```text
//!   ring: budget covers the write -----------------------------------> issue (no call, no lock)
//!   else  THROTTLE.request(bytes)
//!           -> Free { bytes, until }   below the ceiling: a new budget, this write included.
//!                                      No further request before `until`.
//!           -> Free { bytes, now }     above the ceiling, but in time: this write only
//!           -> Throttled { deadline }  above the ceiling: park the write, issue it at the deadline.
//!                                      It is paid for: no second request.
//! ```
//!
//! | file | what |
//! |---|---|
//! | `dirty_rate` | the calculation: pure |
//! | `process` | the account of the process, and the reader of /proc |
//! | `ring` | a ring's budget, and its throttled writes by file |
//!
//! What a ring does with the answer ([`RingThrottle::request`]):
//!
//! ```text
//!   Ok               issue; charge(bytes) when they are written
//!   Err(throttled)   park the request (Stage::Throttled), with its arguments imported;
//!                    parked:   RingThrottle::add, note_throttled, a timer at the deadline
//!                    unparked: RingThrottle::remove, note_unthrottled (refunds what ends early)
//!                    timer:    a worker writes it, since the kernel may put the writer to sleep
//! ```
//!
//! Invariants:
//! - One thread at a time reads /proc, without the lock; the others go by the last reading. The
//!   next reading is made when the last one is at least [`dirty_rate::READING_NS`] old; far from
//!   the limits, once a budget.
//! - The thread that reads has taken the source out of the state. A forked child may have a state
//!   whose source was taken by a thread that the child does not have: after
//!   [`process::SOURCE_LOST_NS`] there is a new source.
//! - Deadlines of one process come in the order of the requests, each as much later as the bytes
//!   requested before it take at the rate of the time. A queue of any length is thus spaced; its
//!   last member waits at most for the bytes before it, at no less than [`dirty_rate::RATE_MIN`]. A
//!   write that is cancelled before its deadline is paid back: writes requested later do not wait
//!   for it (writes requested earlier keep their deadlines).
//!
//! `docs/throttle.md` has the figures, and what the kernel does better.

mod dirty_rate;
mod process;
mod ring;
#[cfg(all(test, not(loom)))]
mod tests;

pub(crate) use dirty_rate::Throttled;
pub(crate) use process::THROTTLE;
pub(crate) use ring::{RingThrottle, note_throttled, note_unthrottled};
