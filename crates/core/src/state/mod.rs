//! A ring: its resources, the requests in flight, who waits and who works for it, and the lock over it all.
//!
//! What is here is held here; what is done with it is `submit`'s and `driver`'s. An op that is issued gets the [`RingResources`] and
//! sees nothing else.
//!
//! One lock a ring, held for short: never over a system call that may sleep. Submission itself is serialised by the
//! [`SubmitBaton`], a value that whoever submits has taken out of the state: it may let the lock go (to run a write,
//! say) and nobody else can submit meanwhile, but everybody can post and cancel.
//!
//! What was posted under the lock becomes visible when the lock is released ([`UringGuard`]'s drop): CQ tail first, then
//! the wake-ups, each at most once.

pub(crate) mod drain;
mod guard;
mod parked;
mod punted;
mod readiness;
mod registered;
mod ring;
mod ring_table;
pub(crate) mod sharing;
mod wakeups;
mod watched;

pub(crate) use crate::ring_resources::LockOwner;
pub(crate) use guard::UringGuard;
pub(crate) use punted::{Punted, WorkerPool};
pub(crate) use readiness::ANY_READABLE;
pub(crate) use registered::{KERNEL_SLOTS, forget_ring, is_registered, register_ring, registered_ring, unregister_ring};
pub(crate) use ring::{Busy, RegisteredEventfd, Ring, RingState};
pub(crate) use ring_table::RINGS;
