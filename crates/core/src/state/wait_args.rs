//! What a program has registered for its waits: their clock, and memory that holds their arguments.

use uringlet_abi::register::RegisteredWait;
use uringlet_sys::process::{ClockId, monotonic_ns, now_ns};
use uringlet_sys::ring_memory::RegionMemory;
use uringlet_sys::{Errno, UserPtr, user};

/// See the module.
#[derive(Debug)]
pub(crate) struct WaitArgs {
    /// `IORING_REGISTER_CLOCK`: what absolute deadlines are on.
    pub(crate) clock: ClockId,
    /// `IORING_REGISTER_MEM_REGION`.
    pub(crate) region: Option<RegionMemory>,
    /// Bytes of the region that hold arguments of waits; 0: it is not for waits.
    pub(crate) len: u64,
}

impl Default for WaitArgs {
    fn default() -> Self {
        Self { clock: ClockId::Monotonic, region: None, len: 0 }
    }
}

impl WaitArgs {
    /// The arguments at an offset of the region, bytes.
    ///
    /// # Errors
    /// `EFAULT` not in the region, or the program has unmapped it.
    pub(crate) fn read(&self, offset: UserPtr) -> Result<RegisteredWait, Errno> {
        let start = offset.addr() as u64;
        let end = start.checked_add(size_of::<RegisteredWait>() as u64).ok_or(Errno::EFAULT)?;
        let region = self.region.as_ref().filter(|_| start.is_multiple_of(8) && end <= self.len).ok_or(Errno::EFAULT)?;
        user::read(region.address().add(offset.addr()))
    }

    /// An absolute deadline on the clock of waits as one on `CLOCK_MONOTONIC`, ns.
    pub(crate) fn deadline_ns(&self, at_ns: u64) -> u64 {
        match self.clock {
            ClockId::Monotonic => at_ns,
            clock => monotonic_ns().saturating_add(at_ns.saturating_sub(now_ns(clock))),
        }
    }
}
