//! The front ends' side of a device.

use super::UblkDevice;
use super::plug::Plug;
use crate::frontend::{BlockClient, BlockDevice, BlockLimits, BlockRequest, IoSlot, SlotExtent};
use crate::platform::{IoBuffers, Platform, SlotRange, Transport};
use crate::tag::TagIo;
use alloc::sync::Arc;
use uringlet_abi::ublk::io;
use uringlet_sys::Errno;

impl<P: Platform> BlockDevice for UblkDevice<P> {
    fn id(&self) -> u32 {
        self.info.dev_id
    }

    fn limits(&self) -> BlockLimits {
        self.queues.first().map(|queue| queue.inner.lock().limits).unwrap_or_default()
    }

    fn queues(&self) -> (u16, u16) {
        (self.info.nr_hw_queues, self.info.queue_depth)
    }

    fn alloc_slot(&self, queue: u16, client: &Arc<dyn BlockClient>) -> Option<IoSlot> {
        let queue = queue % self.info.nr_hw_queues;
        self.queue(queue)?.inner.lock().alloc_slot(queue, client)
    }

    fn free_slot(&self, slot: IoSlot) {
        self.plugged(|plug| self.step(slot.queue, plug, |inner, _, actions| inner.free_slot(&slot, actions)));
    }

    fn busy_poll(&self, enough: &mut dyn FnMut() -> bool) {
        self.transport.busy_poll(enough);
    }

    fn slot_extent(&self, slot: &IoSlot) -> SlotExtent {
        self.buffers.slot_extent(slot.queue, slot.tag)
    }

    fn read(&self, slot: &IoSlot, at: u32, bytes: &mut [u8]) -> Result<(), Errno> {
        self.buffers.read(slot_range(slot, at, bytes.len())?, bytes)
    }

    fn write(&self, slot: &IoSlot, at: u32, bytes: &[u8]) -> Result<(), Errno> {
        self.buffers.write(slot_range(slot, at, bytes.len())?, bytes)
    }

    fn submit(&self, slot: IoSlot, request: BlockRequest, client: &Arc<dyn BlockClient>, cookie: u64) {
        let tag_io = TagIo::new(request, Arc::clone(client), cookie);
        let mut plug = Plug::default();
        self.step(slot.queue, &mut plug, |inner, ctx, actions| inner.submit(ctx, slot.tag, tag_io, actions));
        // The server's part waits for the front end's unplug.
        plug.unplug_clients();
    }

    fn unplug(&self) {
        self.transport.unplug();
    }
}

/// A part of a slot.
///
/// # Errors
/// `EINVAL` beyond its end.
fn slot_range(slot: &IoSlot, at: u32, len: usize) -> Result<SlotRange, Errno> {
    let fits = u64::from(at) + len as u64 <= 1 << io::TAG_SHIFT;
    if fits { Ok(SlotRange { queue: slot.queue, tag: slot.tag, offset: at, len: len as u32 }) } else { Err(Errno::EINVAL) }
}
