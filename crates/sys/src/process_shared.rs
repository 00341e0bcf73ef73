//! What the processes that share a ring have in common beside its queues.

use crate::biased_lock::BiasedLock;
use crate::left_timeouts::LeftTimeouts;
use crate::remote_cancel::RemoteCancel;

/// See the module. All zero for a new ring.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct ProcessShared {
    pub(crate) lock: BiasedLock,
    pub(crate) remote_cancel: RemoteCancel,
    pub(crate) left_timeouts: LeftTimeouts,
}

/// A ring's memory has one page for it.
#[cfg(not(loom))]
const _: () = assert!(size_of::<ProcessShared>() <= crate::arch::PAGE_SIZE);
