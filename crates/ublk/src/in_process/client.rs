//! The in-process front end: `/dev/uringlet/ublkbN`. The program that serves a device can use it by
//! commands on a ring of its own: for tests and benchmarks. A request's CQE has the number of
//! bytes, or -errno.

use super::files::command_bytes;
use super::platform::InProcessPlatform;
use crate::device::UblkDevice;
use crate::frontend::{BlockClient, BlockDevice, BlockRequest, DataLocation, IoOp, IoSlot, SECTOR, SlotExtent};
use crate::slot_queue::{SlotQueue, SlotStarter};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::AtomicU16;
use core::sync::atomic::Ordering::Relaxed;
use uringlet_abi::ublk::{ClientCmd, client, feature, io, ioctl_nr, iod};
use uringlet_core::{PendingCmd, UringCmd, VirtualFile};
use uringlet_sys::lock::Mutex;
use uringlet_sys::{Errno, UserPtr, io as calls};

/// Spreads clients over the queues.
static NEXT_QUEUE: AtomicU16 = AtomicU16::new(0);

/// An open block device.
#[derive(Debug)]
pub(super) struct ClientFile {
    requests: Arc<ClientRequests>,
    /// The same object, as the driver takes it. Cloning it for each request would move the cache
    /// line of its count from CPU to CPU.
    client: Arc<dyn BlockClient>,
}

/// A request with its program's buffer and command.
#[derive(Debug)]
struct QueuedRequest {
    request: BlockRequest,
    buffer: UserPtr,
    pending: PendingCmd,
}

#[derive(Debug)]
struct ClientRequests {
    device: Arc<UblkDevice<InProcessPlatform>>,
    queue: u16,
    /// USER_COPY: the server reads and writes the slots itself, so the data has to be there.
    uses_slots: bool,
    /// By tag. One lock each, so that the submitting and the completing threads do not contend.
    running: Vec<Mutex<Option<QueuedRequest>>>,
    waiting: SlotQueue<QueuedRequest>,
    weak_self: Weak<Self>,
}

impl ClientFile {
    pub(super) fn new(device: Arc<UblkDevice<InProcessPlatform>>) -> Self {
        let (queues, depth) = device.queues();
        let requests = Arc::new_cyclic(|weak_self| ClientRequests {
            queue: NEXT_QUEUE.fetch_add(1, Relaxed) % queues,
            uses_slots: device.has(feature::USER_COPY),
            device,
            running: (0..depth).map(|_| Mutex::new(None)).collect(),
            waiting: SlotQueue::new(),
            weak_self: Weak::clone(weak_self),
        });
        Self { client: Arc::clone(&requests) as Arc<dyn BlockClient>, requests }
    }
}

fn operation(nr: u8) -> Option<IoOp> {
    match u32::from(nr.checked_sub(client::BASE)?) {
        iod::READ => Some(IoOp::Read),
        iod::WRITE => Some(IoOp::Write),
        iod::FLUSH => Some(IoOp::Flush),
        iod::DISCARD => Some(IoOp::Discard),
        iod::WRITE_ZEROES => Some(IoOp::WriteZeroes),
        _ => None,
    }
}

impl VirtualFile for ClientFile {
    fn may_sleep(&self, _: &UringCmd) -> bool {
        false
    }

    fn start(&self, cmd: &UringCmd, pending: PendingCmd) {
        let Some(op) = ioctl_nr(cmd.op).and_then(operation) else {
            return pending.complete(-Errno::EOPNOTSUPP.into_raw());
        };
        let ClientCmd { sector, sectors, flags } = ClientCmd::from_bytes(&command_bytes(cmd));
        let buffer = UserPtr::at(cmd.addr);
        let data = if op.has_data() && !self.requests.uses_slots { DataLocation::Memory(buffer) } else { DataLocation::Slot };
        let queued = QueuedRequest { request: BlockRequest { op, flags, sector, sectors, data }, buffer, pending };
        self.requests.waiting.start_or_wait(queued, &Starter { requests: &self.requests, client: &self.client });
    }

    fn run(&self, _: &UringCmd) -> i32 {
        -Errno::EINVAL.into_raw()
    }

    /// The request goes on: the driver cannot cancel it, and its buffer stays the program's.
    fn cancel(&self, _: &UringCmd) {}

    fn check_mmap(&self, _: u32, _: u64, _: usize) -> Result<(), Errno> {
        Err(Errno::ENODEV)
    }
}

/// Starts requests; has the client as the driver takes it.
struct Starter<'a> {
    requests: &'a ClientRequests,
    client: &'a Arc<dyn BlockClient>,
}

impl SlotStarter<QueuedRequest> for Starter<'_> {
    fn alloc_slot(&self) -> Option<IoSlot> {
        self.requests.device.alloc_slot(self.requests.queue, self.client)
    }

    fn free_slot(&self, slot: IoSlot) {
        self.requests.device.free_slot(slot);
    }

    fn start(&self, slot: IoSlot, queued: QueuedRequest) {
        let ClientRequests { device, uses_slots, running, .. } = self.requests;
        let request = queued.request;
        let len = request.sectors as usize * SECTOR as usize;
        let must_copy = *uses_slots && request.op == IoOp::Write && len <= 1 << io::TAG_SHIFT;
        if must_copy && !copy_into_slot(device.slot_extent(&slot), queued.buffer, len) {
            device.free_slot(slot);
            return queued.pending.complete(-Errno::EFAULT.into_raw());
        }
        *running[slot.tag() as usize].lock() = Some(queued);
        device.submit(slot, request, self.client, 0);
        device.unplug();
    }
}

fn copy_into_slot(to: SlotExtent, from: UserPtr, len: usize) -> bool {
    calls::pwrite(to.fd, from, len, to.offset as i64) == Ok(len)
}

fn copy_from_slot(from: SlotExtent, to: UserPtr, len: usize) -> bool {
    calls::pread(from.fd, to, len, from.offset as i64) == Ok(len)
}

impl BlockClient for ClientRequests {
    fn done(&self, _cookie: u64, slot: IoSlot, result: Result<(), Errno>) {
        let queued = self.running[slot.tag() as usize].lock().take();
        let Some(QueuedRequest { request, buffer, pending }) = queued else { return self.device.free_slot(slot) };
        let len = if request.op.has_data() { request.sectors as usize * SECTOR as usize } else { 0 };
        let res = match result {
            Ok(()) if self.uses_slots && request.op == IoOp::Read && !copy_from_slot(self.device.slot_extent(&slot), buffer, len) => {
                -Errno::EFAULT.into_raw()
            }
            Ok(()) => len as i32,
            Err(errno) => -errno.into_raw(),
        };
        self.device.free_slot(slot);
        pending.complete(res);
    }

    fn slot_freed(&self, _queue: u16) {
        let Some(requests) = self.weak_self.upgrade() else { return };
        let client: Arc<dyn BlockClient> = requests;
        self.waiting.dispatch(&Starter { requests: self, client: &client });
    }
}
