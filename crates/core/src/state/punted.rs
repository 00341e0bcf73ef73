//! What a ring gives to io-wq. `driver::worker` has the worker's side, the `impl Work`.

use crate::identity::Identity;
use crate::io_wq::Account;
use crate::request::ReqId;

/// A request that is queued for a worker, or runs on one.
#[derive(Debug)]
pub(crate) struct Punted {
    pub(crate) ring_index: u32,
    pub(crate) ring_generation: u64,
    pub(crate) id: ReqId,
    /// Its number in io-wq.
    pub(crate) work: u64,
    pub(crate) account: Account,
    /// The worker tries without sleeping first (`driver::hybrid`).
    pub(crate) is_hybrid: bool,
    /// The identity of its worker.
    pub(crate) identity: Identity,
    /// The key of the thread that submitted it.
    pub(crate) submitter: u64,
}
