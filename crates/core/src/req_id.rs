//! Names of requests in flight. Who holds a request elsewhere (the poller, the timers, a worker) knows no more of it.

use core::num::NonZeroU32;

/// Names a parked request. The generation tells it from a later one in the same place.
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
