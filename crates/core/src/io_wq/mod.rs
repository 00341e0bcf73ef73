//! io-wq: the threads that may sleep.
//!
//! Generic over its work: it knows no opcode. There are two classes, bounded (work that ends by
//! itself: files) and unbounded (work that may wait for others: sockets, pipes), each with its own
//! work list, limit and workers.
//!
//! ```text
//!   lock              guards                                       taken
//!   class lock        a class' work list, its hash keys (`hash`),  once to insert an item; once to
//!   (`WorkList`)      the items that its workers run               finish an item and take the next
//!   pool lock         free lists, worker counts and limits of      to wake, start, park, exit; not
//!   (`PoolState`)     both classes (`WorkerCounts`), the CPU mask  while all workers are busy, nor
//!                                                                  while a worker is on its way
//! ```
//!
//! No thread takes one of these locks while it holds another. Between them stands a word of each
//! class, `signal`: written under the pool lock, read without it. Its bit CAN_WAKE says that a
//! worker could come for ready work, and that none is on its way. Ready work and a free worker do
//! not miss each other:
//!
//! ```text
//!   adds ready work                        sets CAN_WAKE (parks, exits, has found work, raises the limit)
//!   class lock                             pool lock: free list, counts, signal; unlock
//!     push                                 class lock
//!     signal has CAN_WAKE?                   is there ready work?
//!   unlock                                 unlock
//!         if so: `wake_or_start`: under the pool lock wake an idle worker, or start one, or find that
//!                there is no need
//! ```
//!
//! One of the two is second under the class lock. If it is the left one, it sees the CAN_WAKE that
//! was set before the right one took the lock. If it is the right one, it sees the work. Each
//! thread that changes one side finishes its column.
//!
//! One worker at a time is on its way: woken or started, and not yet at work. Meanwhile no other
//! one is woken: the worker sets CAN_WAKE again when it has its item, and checks for more work
//! (`found_work`). So a submitter pays for at most one wake-up, also for a hundred items. Items
//! that wait for each other each get a worker while the limit lasts. Items that take less time than
//! a wake-up are done by the worker that is there.
//!
//! A worker exits that is idle for 5 s, or is beyond the limit. It calls `wake_if_ready`
//! afterwards. If no thread can be started then and no worker is left, it rejoins. If there is no
//! worker to begin with and no thread can be started, the submitter gets its items back.
//!
//! All workers of a pool have one identity (`crate::identity`): a worker is started by another one,
//! or by a thread that has this identity. A thread of another identity only adds its item
//! (`enqueue_only`). Where that needs a worker, one of the right identity has to call
//! `start_missing`. If such items may come while no such thread is there, it leaves a worker behind
//! that does not exit (`keep_worker`).
//!
//! A cancel takes an item out of the list, or interrupts the worker that runs it, in that item only
//! (`interrupt`).
//!
//! | file | what |
//! |---|---|
//! | `acct`, `hash` | under the class lock: the work list, and the keys |
//! | `policy` | under the pool lock: when a worker is woken, started and let go |
//! | `worker`, `interrupt` | what other threads know of a worker: park, wake, interrupt |
//! | `pool` | the two locks together: enqueue, cancel, wake |
//! | `worker_loop` | what a worker's thread does |
//!
//! Checked by `model` (loom, and shuttle) and, whole pools with hundreds of items, by
//! `model_at_random` (shuttle).

mod acct;
mod hash;
mod interrupt;
#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, shuttle))]
mod model_at_random;
mod policy;
mod pool;
mod worker;
mod worker_loop;

pub use acct::{Account, Cancelled, KeyLease, WorkList, WorkerSlot};
pub use hash::HashKey;
pub use interrupt::InterruptGuard;
pub use policy::{CAN_WAKE, ExitReason, OVER_LIMIT, WakeAction, WorkerCounts};
pub(crate) use pool::thread_name;
pub use pool::{CpuMask, Hold, IoWq, MayStart, Work};
pub use worker::Worker;

use alloc::sync::Arc;
use uringlet_sys::lock::RawMutex;
use uringlet_sys::process;

/// Constructors: a pool's threads run the worker loop.
impl<W: Work, R: RawMutex> IoWq<W, R> {
    /// A pool with these limits of bounded and unbounded workers. No thread is started before there
    /// is work.
    pub fn with_limits(max_workers: [u32; 2]) -> Arc<Self> {
        Self::named("iou-wrk-", max_workers)
    }

    /// As [`with_limits`](Self::with_limits). `name` stands before the process' number in the names
    /// of its threads.
    pub fn named(name: &'static str, max_workers: [u32; 2]) -> Arc<Self> {
        Self::with_thread(name, max_workers, worker_loop::worker_main)
    }
}

/// The limits of bounded and unbounded workers for a ring of `sq_entries`.
pub(crate) fn default_limits(sq_entries: u32) -> [u32; 2] {
    let bound = sq_entries.min(4 * process::cpu_count()).max(1);
    // Never 0: no worker would be left for the work.
    let unbound = process::rlimit_nproc().clamp(1, u64::from(u32::MAX >> 1)) as u32;
    [bound, unbound]
}
