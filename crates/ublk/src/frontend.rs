//! Between the driver and whoever reads and writes its devices.
//!
//! ```text
//!   FrontEnd::start(device)            a device went live: begin to offer it
//!     device.alloc_slot(queue, &client)      a slot: a tag, and room for its data       (or told by BlockClient::slot_freed later)
//!     device.write(&slot, ..)          fill it (WRITE)                            (or through device.slot_extent())
//!     device.submit(slot, request, &client, cookie)         once for each request of a batch
//!     device.unplug()                  the server sees them
//!     BlockClient::done(cookie, slot, result)      on the thread that ended it; may submit again at once
//!     device.read(&slot, ..)           take the data (READ)
//!     device.free_slot(slot)
//!   FrontEnd::before_stop(id)                it is about to be stopped: caches are written, requests still served
//!   FrontEnd::stop(id)                 no request is taken any more; those in flight still end
//! ```
//!
//! A slot is owned by value: whoever has it may touch its data, and nobody else does until it is given away.

use alloc::sync::Arc;
use core::fmt::Debug;
use uringlet_abi::ublk::iod;
use uringlet_sys::{Errno, UserPtr};

/// Bytes of a sector, the unit of all positions and lengths.
pub const SECTOR: u64 = 512;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum IoOp {
    /// Data comes from the device into the slot.
    Read = iod::READ as u8,
    /// Data goes from the slot to the device.
    Write = iod::WRITE as u8,
    /// What was written before is made durable.
    Flush = iod::FLUSH as u8,
    /// The range's content is not needed any more.
    Discard = iod::DISCARD as u8,
    /// The range reads as zeroes.
    WriteZeroes = iod::WRITE_ZEROES as u8,
}

impl IoOp {
    /// Whether the request has bytes to move.
    #[must_use]
    pub const fn has_data(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }

    /// Whether it changes the device.
    #[must_use]
    pub const fn is_change(self) -> bool {
        matches!(self, Self::Write | Self::Discard | Self::WriteZeroes)
    }
}

/// Where a request's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataLocation {
    /// In its slot.
    Slot,
    /// At an address of the server's own process: only in-process, and not with USER_COPY.
    Memory(UserPtr),
}

/// One block request. At most [`BlockLimits::max_sectors`] (or the limit of its kind) long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRequest {
    /// What to do.
    pub op: IoOp,
    /// `UBLK_IO_F_*`: FUA, NOUNMAP, ...
    pub flags: u32,
    /// First sector.
    pub sector: u64,
    /// Length, sectors; 0 for a flush.
    pub sectors: u32,
    /// Where its bytes are.
    pub data: DataLocation,
}

/// A tag that the holder may use: not in use by anybody else until it is released.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a slot that is dropped is lost: release it"]
pub struct IoSlot {
    pub(crate) queue: u16,
    pub(crate) tag: u16,
}

impl IoSlot {
    /// For those who implement [`BlockDevice`]: one slot a tag at a time, or two owners write the same bytes.
    pub const fn new(queue: u16, tag: u16) -> Self {
        Self { queue, tag }
    }

    /// Its queue.
    #[must_use]
    pub fn queue(&self) -> u16 {
        self.queue
    }

    /// Its tag.
    #[must_use]
    pub fn tag(&self) -> u16 {
        self.tag
    }
}

/// Where a slot's bytes lie in the device's shared file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotExtent {
    /// A descriptor of the file; it stays the device's. -1 where there is no file.
    pub fd: i32,
    /// Of the first byte.
    pub offset: u64,
    /// Bytes that may be used.
    pub len: u32,
}

/// What a device can do, as its server said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockLimits {
    /// Size, sectors.
    pub sectors: u64,
    /// Requests begin and end at multiples of this, bytes.
    pub logical_block: u32,
    /// What the server handles best, bytes.
    pub physical_block: u32,
    /// Best request, bytes; 0 if it does not say.
    pub io_opt: u32,
    /// Longest read or write, sectors.
    pub max_sectors: u32,
    /// Longest discard, sectors; 0: there is none.
    pub max_discard: u32,
    /// Granule of discards, bytes.
    pub discard_granularity: u32,
    /// Longest write of zeroes, sectors; 0: write zeroes yourself.
    pub max_write_zeroes: u32,
    /// Reads and writes do not cross multiples of this, sectors; 0: they may.
    pub chunk_sectors: u32,
    /// Nothing can be written.
    pub is_read_only: bool,
    /// Writes are durable only after a flush (or with FUA).
    pub has_cache: bool,
    /// The server knows FUA; else the driver flushes after a request that has it.
    pub has_fua: bool,
    /// It seeks.
    pub is_rotational: bool,
}

impl BlockLimits {
    /// Longest request of a kind, sectors. 0: the device does not do it.
    #[must_use]
    pub fn max_sectors_of(&self, op: IoOp) -> u32 {
        match op {
            IoOp::Read | IoOp::Write => self.max_sectors,
            IoOp::Discard => self.max_discard,
            IoOp::WriteZeroes => self.max_write_zeroes,
            IoOp::Flush => u32::MAX,
        }
    }

    /// Cuts a range into requests: first sector and length of each. Nothing if the device does not do `op`.
    pub fn split(&self, op: IoOp, sector: u64, sectors: u64) -> impl Iterator<Item = (u64, u32)> + use<> {
        let longest = u64::from(self.max_sectors_of(op));
        let chunk = if op.has_data() { u64::from(self.chunk_sectors) } else { 0 };
        let end = if longest == 0 { sector } else { sector.saturating_add(sectors) };
        let mut at = sector;
        core::iter::from_fn(move || {
            let room = if chunk == 0 { u64::MAX } else { chunk - at % chunk };
            let len = (end - at).min(longest).min(room);
            let piece = (at, len as u32);
            at += len;
            (len > 0).then_some(piece)
        })
    }
}

/// A live device, as front ends use it.
pub trait BlockDevice: Send + Sync + Debug {
    /// Its number.
    fn id(&self) -> u32;

    /// What it can do, now: the size may change.
    fn limits(&self) -> BlockLimits;

    /// Number of queues, and tags of each.
    fn queues(&self) -> (u16, u16);

    /// A free slot of a queue (modulo their number). `None`: all are in use, and `client` hears of the next free one by
    /// [`BlockClient::slot_freed`], once for each time that it asked.
    fn alloc_slot(&self, queue: u16, client: &Arc<dyn BlockClient>) -> Option<IoSlot>;

    /// Gives a slot back.
    fn free_slot(&self, slot: IoSlot);

    /// For who waits for a request, and would rather spin than sleep: does what the device's server sends meanwhile, on this thread, until it is
    /// `enough`, which is asked often. Returns at once where somebody else does that. Requests of others may end by it.
    fn busy_poll(&self, _enough: &mut dyn FnMut() -> bool) {}

    /// Where the slot's bytes lie, for those who move them without a copy here.
    fn slot_extent(&self, slot: &IoSlot) -> SlotExtent;

    /// Copies from the slot, `at` bytes behind its beginning.
    ///
    /// # Errors
    /// `EINVAL` beyond its end; those of pread(2).
    fn read(&self, slot: &IoSlot, at: u32, bytes: &mut [u8]) -> Result<(), Errno>;

    /// Copies into the slot.
    ///
    /// # Errors
    /// As [`read`](Self::read); `ENOSPC`, `ENOMEM` where the file finds no memory.
    fn write(&self, slot: &IoSlot, at: u32, bytes: &[u8]) -> Result<(), Errno>;

    /// Hands a request to the server, which may not see it before [`unplug`](Self::unplug). [`BlockClient::done`] is called exactly
    /// once, perhaps before this returns: also for a request that is refused here (`EINVAL` misaligned or too long, `EIO` beyond the
    /// end, `EPERM` read-only, `EOPNOTSUPP` unsupported operation).
    fn submit(&self, slot: IoSlot, request: BlockRequest, client: &Arc<dyn BlockClient>, cookie: u64);

    /// Publishes the submitted requests to the server: to be called after the last one of a batch, and before the thread waits for
    /// anything.
    fn unplug(&self) {}
}

/// Whoever submits requests.
pub trait BlockClient: Send + Sync + Debug {
    /// A request is over. Called without a lock held, on the thread that brought it about: be quick, or hand on.
    ///
    /// `Err` is what a reader of the block device would get: `EIO`, `ENOSPC`, `EOPNOTSUPP`, `ETIMEDOUT`, ...
    fn done(&self, cookie: u64, slot: IoSlot, result: Result<(), Errno>);

    /// No more results for now: a client that batches its replies sends them here. Follows one or more [`done`](Self::done), on the
    /// same thread.
    fn unplug(&self) {}

    /// A slot of this queue is free, after [`BlockDevice::alloc_slot`] had none. Somebody else may be quicker.
    fn slot_freed(&self, queue: u16) {
        let _ = queue;
    }
}

/// Offers devices to the world.
pub trait FrontEnd: Send + Sync + Debug {
    /// A device is live; START_DEV waits for this.
    ///
    /// # Errors
    /// START_DEV fails with it.
    fn start(&self, device: Arc<dyn BlockDevice>) -> Result<(), Errno>;

    /// Its size has changed.
    fn resized(&self, device: &Arc<dyn BlockDevice>) {
        let _ = device;
    }

    /// The device is about to be stopped, and its server still is there: what the front end keeps of its data is written now.
    /// Others go on reading and writing meanwhile. STOP_DEV waits for this. Not called where there is no server any more.
    fn before_stop(&self, id: u32) {
        let _ = id;
    }

    /// The device is gone. Not called while it is only without a server (QUIESCED, FAIL_IO).
    fn stop(&self, id: u32);
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    #[test]
    fn ranges_are_split_at_the_limits() {
        let limits = BlockLimits { max_sectors: 8, max_discard: 100, ..BlockLimits::default() };
        let cut = |limits: &BlockLimits, op, at, len| limits.split(op, at, len).collect::<Vec<_>>();
        assert_eq!(cut(&limits, IoOp::Read, 3, 20), vec![(3, 8), (11, 8), (19, 4)]);
        assert_eq!(cut(&limits, IoOp::Discard, 3, 20), vec![(3, 20)]);
        assert_eq!(cut(&limits, IoOp::WriteZeroes, 3, 20), vec![]);
        assert_eq!(cut(&limits, IoOp::Write, 3, 0), vec![]);
        let chunked = BlockLimits { chunk_sectors: 8, max_sectors: 6, max_discard: 100, ..BlockLimits::default() };
        assert_eq!(cut(&chunked, IoOp::Write, 6, 12), vec![(6, 2), (8, 6), (14, 2), (16, 2)]);
        assert_eq!(cut(&chunked, IoOp::Discard, 6, 12), vec![(6, 12)]);
    }
}
