//! What a ring gives to workers, and whose workers they are. What a worker does with it is written above, where its
//! `impl Work` is: `submit::punt` for io-wq, `driver::uringlet` for attendants.

use super::Ring;
use crate::io_wq::{self, IoWq};
use crate::request::ReqId;
use alloc::sync::Arc;
use uringlet_sys::process;

/// io-wq, as rings share it.
pub(crate) type WorkerPool = io_wq::SharedPool<Punted>;

/// A request on its way to, or with, a worker.
#[derive(Debug)]
pub(crate) struct Punted {
    pub(crate) ring_index: u32,
    pub(crate) ring_generation: u64,
    pub(crate) id: ReqId,
    /// The worker tries first, and need not do it.
    pub(crate) is_hybrid: bool,
}

/// A ring's own workers.
#[derive(Debug)]
pub(crate) struct Attendants {
    pool: Arc<IoWq<Attendance>>,
    pub(crate) may_spin: bool,
}

impl Attendants {
    /// At most so many; none is started before there is work.
    pub(crate) fn new(max_workers: u32) -> Self {
        Self { pool: IoWq::named("iou-let-", [max_workers, 1]), may_spin: process::cpu_count() > 1 }
    }

    /// In a forked child: the threads are the parent's, the locks may be held by them.
    pub(crate) fn forget(self) {
        core::mem::forget(self);
    }

    /// The pool, for work and for its settings.
    pub(crate) fn pool(&self) -> &Arc<IoWq<Attendance>> {
        &self.pool
    }
}

impl Drop for Attendants {
    fn drop(&mut self) {
        self.pool.shut_down();
    }
}

/// What a worker comes for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// To issue.
    Attendant,
    /// To look after who issues.
    Standby,
}

/// A worker's work for a ring.
#[derive(Debug)]
pub(crate) struct Attendance {
    pub(crate) ring: &'static Ring,
    pub(crate) generation: u64,
    pub(crate) role: Role,
    pub(crate) may_spin: bool,
}
