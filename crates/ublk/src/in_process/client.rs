//! The in-process front end: `/dev/uringlet/ublkbN`. A program that serves a device uses it by commands on a ring of its own: for
//! tests and benchmarks. A request's CQE says the bytes done, or -errno.

use super::InProcessPlatform;
use super::files::command_bytes;
use crate::device::UblkDevice;
use crate::frontend::{BlockClient, BlockDevice, BlockRequest, DataLocation, IoOp, IoSlot, SECTOR, SlotExtent};
use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU16, AtomicU32};
use uringlet::{PendingCmd, UringCmd, VirtualFile};
use uringlet_abi::ublk::{ClientCmd, client, feature, io, ioctl_nr, iod};
use uringlet_sys::lock::Mutex;
use uringlet_sys::{Errno, UserPtr, io as calls};

/// Spreads clients over the queues.
static NEXT_QUEUE: AtomicU16 = AtomicU16::new(0);

/// An open block device.
#[derive(Debug)]
pub(super) struct ClientFile {
    requests: Arc<ClientRequests>,
    /// The same, as the driver takes it: to count it anew for each request would move its cache line from CPU to CPU.
    client: Arc<dyn BlockClient>,
}

/// A request, its program's buffer and its command.
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
    /// The server reads and writes the slots itself: the data has to be there.
    uses_slots: bool,
    /// By tag; a lock for each, since who asks and who ends meet in none then.
    running: Vec<Mutex<Option<QueuedRequest>>>,
    /// For want of a slot.
    waiting: Mutex<VecDeque<QueuedRequest>>,
    /// How many: changed under that lock.
    waiting_count: AtomicU32,
    /// Reasons to look at what waits, since somebody began to.
    reasons: AtomicU32,
    weak_self: Weak<Self>,
}

impl ClientFile {
    pub(super) fn new(device: Arc<UblkDevice<InProcessPlatform>>) -> Self {
        let (queues, depth) = device.queues();
        let requests = Arc::new_cyclic(|me| ClientRequests {
            queue: NEXT_QUEUE.fetch_add(1, Relaxed) % queues,
            uses_slots: device.has(feature::USER_COPY),
            device,
            running: (0..depth).map(|_| Mutex::new(None)).collect(),
            waiting: Mutex::new(VecDeque::new()),
            waiting_count: AtomicU32::new(0),
            reasons: AtomicU32::new(0),
            weak_self: Weak::clone(me),
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
        self.requests
            .start_request(QueuedRequest { request: BlockRequest { op, flags, sector, sectors, data }, buffer, pending }, &self.client);
    }

    fn run(&self, _: &UringCmd) -> i32 {
        -Errno::EINVAL.into_raw()
    }

    /// The request goes on; its buffer is still the program's.
    fn cancel(&self, _: &UringCmd) {}

    fn check_mmap(&self, _: u32, _: u64, _: usize) -> Result<(), Errno> {
        Err(Errno::ENODEV)
    }
}

impl ClientRequests {
    fn start_request(&self, queued: QueuedRequest, client: &Arc<dyn BlockClient>) {
        // Behind those that wait already. Where a slot is refused and freed before the request is in line, `dispatch_waiting` asks again.
        if self.waiting_count.load(Acquire) == 0
            && let Some(slot) = self.device.alloc_slot(self.queue, client)
        {
            return self.submit(slot, queued, client);
        }
        {
            let mut waiting = self.waiting.lock();
            waiting.push_back(queued);
            self.waiting_count.store(waiting.len() as u32, Release);
        }
        self.dispatch_waiting();
    }

    fn next_waiting(&self) -> Option<QueuedRequest> {
        let mut waiting = self.waiting.lock();
        let next = waiting.pop_front();
        self.waiting_count.store(waiting.len() as u32, Release);
        next
    }

    /// Starts what waits, as far as there are slots. One thread does it: what ends while it does, deeper in its stack or on
    /// another thread, is one more reason for it to look again.
    fn dispatch_waiting(&self) {
        let mut reasons = 1;
        if self.reasons.fetch_add(1, AcqRel) > 0 {
            return;
        }
        while reasons > 0 {
            self.start_waiting();
            reasons = self.reasons.fetch_sub(reasons, AcqRel) - reasons;
        }
    }

    fn start_waiting(&self) {
        let Some(me) = self.weak_self.upgrade() else { return };
        let client: Arc<dyn BlockClient> = me;
        while self.waiting_count.load(Acquire) > 0 {
            // Where there is none, the next one is told of.
            let Some(slot) = self.device.alloc_slot(self.queue, &client) else { return };
            match self.next_waiting() {
                Some(queued) => self.submit(slot, queued, &client),
                None => return self.device.free_slot(slot),
            }
        }
    }

    fn submit(&self, slot: IoSlot, queued: QueuedRequest, client: &Arc<dyn BlockClient>) {
        let request = queued.request;
        let len = request.sectors as usize * SECTOR as usize;
        let must_copy = self.uses_slots && request.op == IoOp::Write && len <= 1 << io::TAG_SHIFT;
        if must_copy && !copy_into_slot(self.device.slot_extent(&slot), queued.buffer, len) {
            self.device.free_slot(slot);
            return queued.pending.complete(-Errno::EFAULT.into_raw());
        }
        *self.running[slot.tag() as usize].lock() = Some(queued);
        self.device.submit(slot, request, client, 0);
        self.device.unplug();
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
        self.dispatch_waiting();
    }
}
