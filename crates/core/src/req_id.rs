//! Names of requests in flight. The poller, the timers and the workers know a request only by its
//! name.

use core::num::NonZeroU32;

/// Names a parked request. The generation tells it from a later request of the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ReqId {
    pub(crate) key: u32,
    pub(crate) generation: NonZeroU32,
}

impl ReqId {
    pub(crate) fn to_u64(self) -> u64 {
        u64::from(self.key) | u64::from(self.generation.get()) << 32
    }

    pub(crate) fn from_u64(n: u64) -> Option<Self> {
        Some(Self { key: n as u32, generation: NonZeroU32::new((n >> 32) as u32)? })
    }
}
