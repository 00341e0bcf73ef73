//! A pool as rings share it.

use super::pool::{IoWq, Work};
use alloc::sync::Arc;

/// A ring's share in a pool: the pool ends with the last share.
#[derive(Debug)]
pub(crate) struct SharedPool<W: Work>(Arc<PoolShare<W>>);

#[derive(Debug)]
struct PoolShare<W: Work>(Arc<IoWq<W>>);

impl<W: Work> SharedPool<W> {
    /// A pool of its own for a ring of `sq_entries`.
    pub(crate) fn new(sq_entries: u32) -> Self {
        Self(Arc::new(PoolShare(IoWq::new(sq_entries))))
    }

    /// A pool with these limits of bounded and unbounded workers.
    pub(crate) fn with_limits(max_workers: [u32; 2]) -> Self {
        Self(Arc::new(PoolShare(IoWq::with_limits(max_workers))))
    }

    /// In a forked child: the pool's threads are the parent's, its locks may be held by them.
    pub(crate) fn forget(&self) {
        core::mem::forget(self.clone());
    }
}

impl<W: Work> Clone for SharedPool<W> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<W: Work> core::ops::Deref for SharedPool<W> {
    type Target = Arc<IoWq<W>>;
    fn deref(&self) -> &Arc<IoWq<W>> {
        &(self.0).0
    }
}

impl<W: Work> Drop for PoolShare<W> {
    fn drop(&mut self) {
        self.0.shut_down();
    }
}
