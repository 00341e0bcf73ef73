//! A ring's own workers in uringlet mode, and the tasks they get.

use crate::identity::Identity;
use crate::io_wq::{IoWq, MayStart};
use alloc::sync::Arc;
use uringlet_sys::process;

/// A ring's own workers.
#[derive(Debug)]
pub(crate) struct UringletWorkers {
    pool: Arc<IoWq<WorkerTask>>,
    /// The identity of the threads, if known.
    pub(crate) identity: Option<Identity>,
    pub(crate) may_spin: bool,
}

impl UringletWorkers {
    /// At most `max_workers`, started by threads of this identity. None is started before there is
    /// work.
    pub(crate) fn new(max_workers: u32, identity: Option<Identity>) -> Self {
        Self { identity, pool: IoWq::named("iou-let-", [max_workers, 1]), may_spin: process::cpu_count() > 1 }
    }

    /// In a forked child: the threads are the parent's, and may have held the locks.
    pub(crate) fn forget(self) {
        core::mem::forget(self);
    }

    /// Sets the limit; 0 leaves it unchanged. The calling thread has the identity `own`, if that is
    /// known.
    pub(crate) fn set_max(&self, own: Option<Identity>, max_workers: u32) {
        let may_start = if own == self.identity { MayStart::Yes } else { MayStart::No };
        self.pool.set_max_workers([max_workers, 0], may_start);
    }

    /// The pool, for work and for its settings.
    pub(crate) fn pool(&self) -> &Arc<IoWq<WorkerTask>> {
        &self.pool
    }
}

impl Drop for UringletWorkers {
    fn drop(&mut self) {
        self.pool.shut_down();
    }
}

/// What a worker is started for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkerRole {
    /// To run what is queued.
    Runner,
    /// To watch the holder of the baton.
    Monitor,
}

/// A worker's task for a ring.
#[derive(Debug)]
pub(crate) struct WorkerTask {
    pub(crate) ring_index: u32,
    pub(crate) generation: u64,
    pub(crate) role: WorkerRole,
    pub(crate) identity: Option<Identity>,
    pub(crate) may_spin: bool,
}
