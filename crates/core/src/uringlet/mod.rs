//! Uringlet submission: the thread that holds the ring's baton runs what is queued, sleeping if
//! need be. When it blocks, the baton passes to another thread. `README.md` has the protocol, its
//! states and its races.
//!
//! ```text
//!   worker          a worker of a ring              model     both for a model (loom, shuttle)
//!   ring            a ring as the host of a queue
//!   worker_loop     runner and monitor, generic
//!   step            one item, wake-ups, generic
//!   run_queue       the queue and the baton         workers   the pool and its tasks
//! ```
//!
//! `state` holds a `RunQueue` and `UringletWorkers`; the rest is above `submit`, and `worker` above
//! `driver::leave`.

#[cfg(all(test, loom))]
mod model;
mod ring;
pub(crate) mod run_queue;
mod step;
mod worker;
mod worker_loop;
pub(crate) mod workers;

pub(crate) use ring::{run_queued, wake};
