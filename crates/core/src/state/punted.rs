//! What a ring gives to io-wq. `driver::worker` has the worker's side, the `impl Work`.

use crate::io_wq::SharedPool;
use crate::request::ReqId;

/// io-wq, as rings share it.
pub(crate) type WorkerPool = SharedPool<Punted>;

/// A request that is queued for a worker, or runs on one.
#[derive(Debug)]
pub(crate) struct Punted {
    pub(crate) ring_index: u32,
    pub(crate) ring_generation: u64,
    pub(crate) id: ReqId,
    /// The worker tries without sleeping first (`driver::hybrid`).
    pub(crate) is_hybrid: bool,
}
