//! A pool of requests, as rings share it.

use super::IoWq;
use crate::submit::Punted;
use alloc::sync::Arc;

/// A ring's share in a pool: the pool ends with the last one.
#[derive(Clone, Debug)]
pub(crate) struct Pool(Arc<Share>);

#[derive(Debug)]
struct Share(Arc<IoWq<Punted>>);

impl Pool {
    /// A pool of its own for a ring of `sq_entries`.
    pub(crate) fn new(sq_entries: u32) -> Self {
        Self(Arc::new(Share(IoWq::new(sq_entries))))
    }

    /// A pool with these limits of bounded and unbounded workers.
    pub(crate) fn with_limits(max_workers: [u32; 2]) -> Self {
        Self(Arc::new(Share(IoWq::with_limits(max_workers))))
    }

    /// In a forked child: the pool's threads are the parent's, its locks may be held by them.
    pub(crate) fn forget(&self) {
        core::mem::forget(self.clone());
    }
}

impl core::ops::Deref for Pool {
    type Target = Arc<IoWq<Punted>>;
    fn deref(&self) -> &Arc<IoWq<Punted>> {
        &(self.0).0
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.0.shut_down();
    }
}
