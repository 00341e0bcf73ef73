//! A device in memory without a server: a second implementation of [`BlockDevice`], for tests of
//! front ends.

use crate::sparse::SparseMemory;
use crate::sync::lock;
use std::collections::VecDeque;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use uringlet_abi::ublk::iod;
use uringlet_sys::Errno;
use uringlet_ublk::frontend::{BlockClient, BlockDevice, BlockLimits, BlockRequest, DataLocation, IoOp, IoSlot, SECTOR, SlotExtent};

/// The properties of the device.
#[derive(Clone, Copy, Debug)]
pub struct RamDeviceSpec {
    /// The limits that front ends see.
    pub limits: BlockLimits,
    /// Queues.
    pub queues: u16,
    /// Tags of each.
    pub depth: u16,
    /// Threads that execute requests; 0: the submitting thread.
    pub threads: u16,
}

impl RamDeviceSpec {
    /// A device of this many bytes that supports every operation.
    #[must_use]
    pub fn with_size(bytes: u64) -> Self {
        let limits = BlockLimits {
            sectors: bytes / SECTOR,
            logical_block: 512,
            physical_block: 4096,
            max_sectors: 1024,
            max_discard: 1 << 20,
            discard_granularity: 4096,
            max_write_zeroes: 1 << 20,
            has_cache: true,
            has_fua: true,
            ..BlockLimits::default()
        };
        Self { limits, queues: 2, depth: 32, threads: 2 }
    }
}

/// Injected faults, and the requests seen.
#[derive(Debug, Default)]
struct FaultInjection {
    /// Requests that touch these sectors fail with this error.
    faults: Vec<(std::ops::Range<u64>, Errno)>,
    /// Requests are held back until resumed.
    is_paused: bool,
    paused: Vec<RamRequest>,
    /// The last requests, oldest first.
    requests: VecDeque<BlockRequest>,
}

/// How many requests are remembered.
const REQUESTS_KEPT: usize = 1024;

#[derive(Debug)]
struct RamRequest {
    slot: IoSlot,
    io: BlockRequest,
    client: Arc<dyn BlockClient>,
    cookie: u64,
}

#[derive(Debug, Default)]
struct QueueTags {
    free: Vec<u16>,
    waiting_clients: VecDeque<Arc<dyn BlockClient>>,
}

/// See the module.
#[derive(Debug)]
pub struct RamDevice {
    id: u32,
    core: Arc<RamCore>,
    workers: Vec<Mutex<Sender<RamRequest>>>,
}

#[derive(Debug)]
struct RamCore {
    limits: Mutex<BlockLimits>,
    memory: SparseMemory,
    slots: Vec<Vec<Mutex<Vec<u8>>>>,
    tags: Vec<Mutex<QueueTags>>,
    injection: Mutex<FaultInjection>,
}

impl RamDevice {
    /// A device of zeroes. Its threads end with it.
    #[must_use]
    pub fn new(id: u32, spec: RamDeviceSpec) -> Self {
        let tags = || Mutex::new(QueueTags { free: (0..spec.depth).rev().collect(), waiting_clients: VecDeque::new() });
        let slots = || (0..spec.depth).map(|_| Mutex::default()).collect();
        let core = Arc::new(RamCore {
            limits: Mutex::new(spec.limits),
            memory: SparseMemory::default(),
            slots: (0..spec.queues).map(|_| slots()).collect(),
            tags: (0..spec.queues).map(|_| tags()).collect(),
            injection: Mutex::default(),
        });
        let worker = |_| {
            let (sender, jobs) = channel::<RamRequest>();
            let core = Arc::clone(&core);
            std::thread::spawn(move || jobs.into_iter().for_each(|job| core.run(job)));
            Mutex::new(sender)
        };
        let workers = (0..spec.threads).map(worker).collect();
        Self { id, core, workers }
    }

    /// Its content.
    #[must_use]
    pub fn memory(&self) -> &SparseMemory {
        &self.core.memory
    }

    /// Makes requests that touch these sectors fail.
    pub fn fail(&self, sectors: std::ops::Range<u64>, errno: Errno) {
        lock(&self.core.injection).faults.push((sectors, errno));
    }

    /// Holds requests back from now on, as a device without a server does.
    pub fn pause(&self) {
        lock(&self.core.injection).is_paused = true;
    }

    /// Executes the requests that were held back.
    pub fn resume(&self) {
        let paused = {
            let mut injection = lock(&self.core.injection);
            injection.is_paused = false;
            std::mem::take(&mut injection.paused)
        };
        paused.into_iter().for_each(|job| self.dispatch(job));
    }

    /// Changes the size.
    pub fn resize(&self, sectors: u64) {
        lock(&self.core.limits).sectors = sectors;
    }

    /// The last requests, at most a thousand.
    #[must_use]
    pub fn requests(&self) -> Vec<BlockRequest> {
        lock(&self.core.injection).requests.iter().copied().collect()
    }

    /// The number of free slots.
    #[must_use]
    pub fn free_slots(&self) -> usize {
        self.core.tags.iter().map(|tags| lock(tags).free.len()).sum()
    }

    fn dispatch(&self, job: RamRequest) {
        match self.workers.get(job.slot.queue() as usize % self.workers.len().max(1)) {
            // The receiver lives as long as the sender.
            Some(worker) => drop(lock(worker).send(job)),
            None => self.core.run(job),
        }
    }
}

impl BlockDevice for RamDevice {
    fn id(&self) -> u32 {
        self.id
    }

    fn limits(&self) -> BlockLimits {
        *lock(&self.core.limits)
    }

    fn queues(&self) -> (u16, u16) {
        (self.core.slots.len() as u16, self.core.slots[0].len() as u16)
    }

    fn alloc_slot(&self, queue: u16, client: &Arc<dyn BlockClient>) -> Option<IoSlot> {
        let queue = queue % self.core.tags.len() as u16;
        let mut tags = lock(&self.core.tags[queue as usize]);
        let tag = tags.free.pop();
        if tag.is_none() {
            tags.waiting_clients.push_back(Arc::clone(client));
        }
        tag.map(|tag| IoSlot::new(queue, tag))
    }

    fn free_slot(&self, slot: IoSlot) {
        let waiting_clients = {
            let mut tags = lock(&self.core.tags[slot.queue() as usize]);
            assert!(!tags.free.contains(&slot.tag()), "{slot:?} is released twice");
            tags.free.push(slot.tag());
            tags.waiting_clients.pop_front()
        };
        if let Some(client) = waiting_clients {
            client.slot_freed(slot.queue());
        }
    }

    fn slot_extent(&self, _slot: &IoSlot) -> SlotExtent {
        SlotExtent { fd: -1, offset: 0, len: 0 }
    }

    fn read(&self, slot: &IoSlot, at: u32, bytes: &mut [u8]) -> Result<(), Errno> {
        let data = lock(self.core.slot(slot));
        let part = data.get(at as usize..at as usize + bytes.len()).ok_or(Errno::EINVAL)?;
        bytes.copy_from_slice(part);
        Ok(())
    }

    fn write(&self, slot: &IoSlot, at: u32, bytes: &[u8]) -> Result<(), Errno> {
        let end = at as usize + bytes.len();
        if end as u64 > u64::from(self.limits().max_sectors) * SECTOR {
            return Err(Errno::EINVAL);
        }
        let mut data = lock(self.core.slot(slot));
        if data.len() < end {
            data.resize(end, 0);
        }
        data[at as usize..end].copy_from_slice(bytes);
        Ok(())
    }

    fn submit(&self, slot: IoSlot, request: BlockRequest, client: &Arc<dyn BlockClient>, cookie: u64) {
        let job = RamRequest { slot, io: request, client: Arc::clone(client), cookie };
        {
            let mut injection = lock(&self.core.injection);
            if injection.requests.len() == REQUESTS_KEPT {
                injection.requests.pop_front();
            }
            injection.requests.push_back(request);
            if injection.is_paused {
                injection.paused.push(job);
                return;
            }
        }
        self.dispatch(job);
    }
}

impl RamCore {
    fn slot(&self, slot: &IoSlot) -> &Mutex<Vec<u8>> {
        &self.slots[slot.queue() as usize][slot.tag() as usize]
    }

    fn run(&self, job: RamRequest) {
        let result = self.validate(&job.io).map(|()| self.execute(&job));
        job.client.done(job.cookie, job.slot, result);
        job.client.unplug();
    }

    fn validate(&self, request: &BlockRequest) -> Result<(), Errno> {
        let limits = lock(&self.limits);
        let block = u64::from(limits.logical_block) / SECTOR;
        let len = u64::from(request.sectors);
        if request.op != IoOp::Flush && limits.max_sectors_of(request.op) == 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        if request.op.is_change() && limits.is_read_only {
            return Err(Errno::EPERM);
        }
        let is_aligned = request.sector.is_multiple_of(block) && len.is_multiple_of(block);
        if !is_aligned || request.sectors > limits.max_sectors_of(request.op) || request.data != DataLocation::Slot {
            return Err(Errno::EINVAL);
        }
        if request.sector.checked_add(len).is_none_or(|end| end > limits.sectors) {
            return Err(Errno::EIO);
        }
        let range = request.sector..request.sector + len;
        let injection = lock(&self.injection);
        let hit = injection.faults.iter().find(|(fault, _)| fault.start < range.end && range.start < fault.end);
        hit.map_or(Ok(()), |(_, errno)| Err(*errno))
    }

    fn execute(&self, job: &RamRequest) {
        let (at, len) = (job.io.sector * SECTOR, u64::from(job.io.sectors) * SECTOR);
        match job.io.op {
            IoOp::Read => {
                let mut data = lock(self.slot(&job.slot));
                data.resize(len as usize, 0);
                self.memory.read(at, &mut data);
            }
            IoOp::Write => self.memory.write(at, &lock(self.slot(&job.slot))[..len as usize]),
            IoOp::Discard | IoOp::WriteZeroes => self.memory.zero(at, len),
            IoOp::Flush => {}
        }
    }
}

/// Whether a request asks for FUA.
#[must_use]
pub fn is_fua(request: &BlockRequest) -> bool {
    request.flags & iod::F_FUA != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use uringlet_ublk::blocking::BlockingClient;

    fn client(threads: u16) -> (Arc<RamDevice>, BlockingClient) {
        let device = Arc::new(RamDevice::new(3, RamDeviceSpec { threads, depth: 1, ..RamDeviceSpec::with_size(4 << 20) }));
        (Arc::clone(&device), BlockingClient::new(device, 0))
    }

    #[test]
    fn data_survives_with_and_without_worker_threads() {
        for threads in [0, 2] {
            let (device, client) = client(threads);
            let bytes: Vec<u8> = (0..1 << 20).map(|i: u32| (i / 3) as u8).collect();
            client.write(64, &bytes, iod::F_FUA).unwrap();
            let mut back = vec![0; bytes.len()];
            client.read(64, &mut back).unwrap();
            assert_eq!(back, bytes);
            assert!(device.requests().iter().any(is_fua));
            assert_eq!(device.free_slots(), 2);
        }
    }

    #[test]
    fn faults_and_accesses_beyond_the_end_fail() {
        let (device, client) = client(1);
        device.fail(8..9, Errno::ENOSPC);
        assert_eq!(client.write(0, &[1; 8192], 0), Err(Errno::ENOSPC));
        assert_eq!(client.write((4 << 20) / SECTOR, &[1; 512], 0), Err(Errno::EIO));
        assert_eq!(client.run_without_data(IoOp::Discard, 0, 16, 16), Ok(()));
        assert_eq!(device.free_slots(), 2);
    }
}
