//! The interface between the driver and the clients of its devices.
//!
//! ```text
//!   FrontEnd::reserve(id)                      ADD_DEV: nobody else on this machine may use the number
//!   FrontEnd::start(device)                    a device is live: offer it
//!     device.alloc_slot(queue, &client)        a tag with room for its data (or BlockClient::slot_freed later)
//!     device.write(&slot, ..)                  fill it (WRITE), or through device.slot_extent()
//!     device.submit(slot, request, &client, cookie)      for each request of a batch
//!     device.unplug()                          the server sees the batch
//!     BlockClient::done(cookie, slot, result)  on the thread that ended the request; may submit again
//!     BlockClient::unplug()                    no more results for now
//!     device.read(&slot, ..)                   take the data (READ)
//!     device.free_slot(slot)
//!   FrontEnd::before_stop(id)                  write back caches; requests are still served
//!   FrontEnd::stop(id)                         new requests fail; those in flight still end
//!   FrontEnd::release(id)                      DEL_DEV: the number is free
//! ```
//!
//! A slot is owned by value: only its owner touches its data, until it submits or frees the slot.

use alloc::string::String;
use alloc::sync::Arc;
use core::fmt::Debug;
use uringlet_abi::ublk::iod;
use uringlet_sys::{Errno, UserPtr};

/// Bytes of a sector, the unit of positions and lengths.
pub const SECTOR: u64 = 512;

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum IoOp {
    /// Data comes from the device into the slot.
    Read = iod::READ as u8,
    /// Data goes from the slot to the device.
    Write = iod::WRITE as u8,
    /// Earlier writes become durable.
    Flush = iod::FLUSH as u8,
    /// The range's content is no longer needed.
    Discard = iod::DISCARD as u8,
    /// The range reads as zeroes.
    WriteZeroes = iod::WRITE_ZEROES as u8,
}

impl IoOp {
    /// Whether the request transfers bytes.
    #[must_use]
    pub const fn has_data(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }

    /// Whether the operation modifies the device.
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
    /// At an address of the server's process: only in-process, and not with USER_COPY.
    Memory(UserPtr),
}

/// One block request. Its length is at most [`BlockLimits::max_sectors`], or the limit of its
/// operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRequest {
    /// The operation.
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

/// A tag and the room for its data, owned until it is freed.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a slot that is dropped is lost: release it"]
pub struct IoSlot {
    pub(crate) queue: u16,
    pub(crate) tag: u16,
}

impl IoSlot {
    /// For implementations of [`BlockDevice`]: only one slot may exist per tag, or two owners write
    /// the same bytes.
    pub const fn new(queue: u16, tag: u16) -> Self {
        Self { queue, tag }
    }

    /// The queue.
    #[must_use]
    pub fn queue(&self) -> u16 {
        self.queue
    }

    /// The tag.
    #[must_use]
    pub fn tag(&self) -> u16 {
        self.tag
    }
}

/// The extent of a slot in the device's shared file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotExtent {
    /// A descriptor of the file, owned by the device. -1 if there is no file.
    pub fd: i32,
    /// Offset of the first byte.
    pub offset: u64,
    /// Usable bytes.
    pub len: u32,
}

/// The limits of a device, as its server set them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockLimits {
    /// Size, sectors.
    pub sectors: u64,
    /// Requests are aligned to this, bytes.
    pub logical_block: u32,
    /// The block size that the server handles best, bytes.
    pub physical_block: u32,
    /// Optimal request size, bytes; 0 if unknown.
    pub io_opt: u32,
    /// Longest read or write, sectors.
    pub max_sectors: u32,
    /// Longest discard, sectors; 0: not supported.
    pub max_discard: u32,
    /// Granularity of discards, bytes.
    pub discard_granularity: u32,
    /// Longest write of zeroes, sectors; 0: not supported.
    pub max_write_zeroes: u32,
    /// Reads and writes do not cross multiples of this, sectors; 0: they may.
    pub chunk_sectors: u32,
    /// Writes fail.
    pub is_read_only: bool,
    /// Writes are durable only after a flush (or with FUA).
    pub has_cache: bool,
    /// The server supports FUA; else the driver flushes after a request with FUA.
    pub has_fua: bool,
    /// UBLK_ATTR_ROTATIONAL.
    pub is_rotational: bool,
}

impl BlockLimits {
    /// Longest request of an operation, sectors. 0: not supported.
    #[must_use]
    pub fn max_sectors_of(&self, op: IoOp) -> u32 {
        match op {
            IoOp::Read | IoOp::Write => self.max_sectors,
            IoOp::Discard => self.max_discard,
            IoOp::WriteZeroes => self.max_write_zeroes,
            IoOp::Flush => u32::MAX,
        }
    }

    /// Splits a range into requests: first sector and length of each. Empty if `op` is not
    /// supported.
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

/// A live device, as its front ends use it.
pub trait BlockDevice: Send + Sync + Debug {
    /// Its number.
    fn id(&self) -> u32;

    /// Its limits at this moment: the size may change.
    fn limits(&self) -> BlockLimits;

    /// Number of queues, and of tags per queue.
    fn queues(&self) -> (u16, u16);

    /// Allocates a slot of a queue (modulo the number of queues). `None`: all are in use, and
    /// [`BlockClient::slot_freed`] of `client` is called for the next free one, once for each such
    /// call.
    fn alloc_slot(&self, queue: u16, client: &Arc<dyn BlockClient>) -> Option<IoSlot>;

    /// Frees a slot.
    fn free_slot(&self, slot: IoSlot);

    /// For a thread that waits for a request and would rather spin than sleep: handles on this
    /// thread what the device's server sends, until `enough` returns true. `enough` is called
    /// often. Returns at once if another thread handles the server already. Requests of other
    /// clients may end here.
    fn busy_poll(&self, _enough: &mut dyn FnMut() -> bool) {}

    /// Where the slot's bytes lie, for clients that move them without a copy here.
    fn slot_extent(&self, slot: &IoSlot) -> SlotExtent;

    /// Copies from the slot, starting at byte `at`.
    ///
    /// # Errors
    /// `EINVAL` beyond its end; those of pread(2).
    fn read(&self, slot: &IoSlot, at: u32, bytes: &mut [u8]) -> Result<(), Errno>;

    /// Copies into the slot, starting at byte `at`.
    ///
    /// # Errors
    /// As [`read`](Self::read); `ENOSPC`, `ENOMEM` if the file finds no memory.
    fn write(&self, slot: &IoSlot, at: u32, bytes: &[u8]) -> Result<(), Errno>;

    /// Submits a request. The server may not see it before [`unplug`](Self::unplug).
    /// [`BlockClient::done`] is called exactly once, possibly before this returns, also for a
    /// request that is refused here (`EINVAL` misaligned or too long, `EIO` beyond the end, `EPERM`
    /// read-only, `EOPNOTSUPP` unsupported operation).
    fn submit(&self, slot: IoSlot, request: BlockRequest, client: &Arc<dyn BlockClient>, cookie: u64);

    /// Publishes the submitted requests to the server. To be called after the last request of a
    /// batch, and before the thread waits for anything.
    fn unplug(&self) {}
}

/// Submits requests.
pub trait BlockClient: Send + Sync + Debug {
    /// A request has ended. Called without a lock held, on the thread that ended it: the client
    /// must not block, and may submit again.
    ///
    /// `Err` is what a reader of the block device would get: `EIO`, `ENOSPC`, `EOPNOTSUPP`,
    /// `ETIMEDOUT`, ...
    fn done(&self, cookie: u64, slot: IoSlot, result: Result<(), Errno>);

    /// No more results for now: a client that batches its replies sends them here. Follows one or
    /// more calls of [`done`](Self::done), on the same thread.
    fn unplug(&self) {}

    /// A slot of this queue is free, after [`BlockDevice::alloc_slot`] had none. Another client may
    /// take it first.
    fn slot_freed(&self, queue: u16) {
        let _ = queue;
    }
}

/// Offers devices to their users.
pub trait FrontEnd: Send + Sync + Debug {
    /// A device of this number is about to be added. Reserves the number on this machine until
    /// [`release`](Self::release), if the front end's names are visible to all of it. Called
    /// without a lock that the front end could want; must not call the driver.
    ///
    /// # Errors
    /// `EEXIST`: another process has the number.
    fn reserve(&self, id: u32) -> Result<(), Errno> {
        let _ = id;
        Ok(())
    }

    /// The device of a reserved number is gone.
    fn release(&self, id: u32) {
        let _ = id;
    }

    /// The path of the block device that this front end has made for a device, while there is one.
    fn block_node(&self, id: u32) -> Option<String> {
        let _ = id;
        None
    }

    /// A device is live. START_DEV waits for this.
    ///
    /// # Errors
    /// START_DEV fails with it.
    fn start(&self, device: Arc<dyn BlockDevice>) -> Result<(), Errno>;

    /// The size of the device has changed.
    fn resized(&self, device: &Arc<dyn BlockDevice>) {
        let _ = device;
    }

    /// The device is about to be stopped, and its server is still there: the front end writes back
    /// its caches. Other requests go on meanwhile. STOP_DEV waits for this. Not called if the
    /// server is lost.
    fn before_stop(&self, id: u32) {
        let _ = id;
    }

    /// The device is stopped. Not called while it only has no server (QUIESCED, FAIL_IO).
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
