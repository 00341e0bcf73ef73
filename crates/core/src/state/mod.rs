//! A ring: its resources, its requests in flight, its waiters and workers, behind one lock.
//!
//! `state` owns the data; `submit` and `driver` implement its behaviour. An op that is issued gets
//! the `RingResources` and sees nothing else.
//!
//! A ring has one lock. It is held briefly, never over a system call that may sleep. Submission is
//! serialised by the `SubmitBaton`, a value that the submitter takes out of the state. The
//! submitter may release the lock, for example to run a write: no other thread can submit
//! meanwhile, but all can post and cancel.
//!
//! CQEs that were posted under the lock become visible when it is released ([`UringGuard`]'s drop):
//! the CQ tail first, then the wake-ups, each at most once.

pub(crate) mod drain;
mod filters;
mod guard;
pub(crate) mod home_table;
mod metadata_pace;
mod napi;
mod parked;
mod personalities;
mod policy_text;
mod punted;
mod readiness;
mod ready;
mod registered;
mod restrictions;
mod ring;
mod ring_table;
pub(crate) mod sharing;
pub(crate) mod task_policy;
mod transfer_reports;
mod user_data_index;
mod wait_args;
mod wakeups;
mod watched;
mod worker_pool;

pub(crate) use crate::ring_resources::LockOwner;
pub(crate) use filters::{Filter, FilterContext, Filters};
pub(crate) use guard::UringGuard;
pub(crate) use napi::Napi;
pub(crate) use policy_text::TaskPolicy;
pub(crate) use punted::Punted;
pub(crate) use readiness::ANY_READABLE;
pub(crate) use ready::Ready;
pub(crate) use registered::{KERNEL_SLOTS, forget_ring, is_registered, register_ring, registered_ring, unregister_ring};
pub(crate) use restrictions::Restrictions;
pub(crate) use ring::{Busy, EventfdCounts, RegisteredEventfd, Ring, RingState};
pub(crate) use ring_table::RINGS;
pub(crate) use wait_args::WaitArgs;
pub(crate) use worker_pool::WorkerPool;
