//! A blocking client in the same process: one request after another.

use crate::frontend::{BlockClient, BlockDevice, BlockRequest, DataLocation, IoOp, IoSlot, SECTOR};
use alloc::sync::Arc;
use core::sync::atomic::Ordering::{AcqRel, Acquire};
use uringlet_sys::Errno;
use uringlet_sys::lock::{Mutex, futex_wait, futex_wake};
use uringlet_sys::sync::AtomicU32;

/// Never, as a deadline.
const NO_DEADLINE: u64 = u64::MAX;

/// Reads and writes a device, one request at a time, on the calling thread.
#[derive(Debug)]
pub struct BlockingClient {
    device: Arc<dyn BlockDevice>,
    queue: u16,
    state: Arc<BlockingState>,
}

#[derive(Debug)]
struct BlockingState {
    /// Counts events: the futex word.
    event_seq: AtomicU32,
    finished: Mutex<Option<(IoSlot, Result<(), Errno>)>>,
}

impl BlockingState {
    fn notify(&self) {
        self.event_seq.fetch_add(1, AcqRel);
        futex_wake(&self.event_seq, u32::MAX);
    }

    /// Waits for an event after `seen`. A signal only causes one more check.
    fn wait(&self, seen: u32) {
        let _ = futex_wait(&self.event_seq, seen, NO_DEADLINE);
    }
}

impl BlockClient for BlockingState {
    fn done(&self, _cookie: u64, slot: IoSlot, result: Result<(), Errno>) {
        *self.finished.lock() = Some((slot, result));
        self.notify();
    }

    fn slot_freed(&self, _queue: u16) {
        self.notify();
    }
}

impl BlockingClient {
    /// A client that uses one queue of `device` (modulo the number of queues).
    #[must_use]
    pub fn new(device: Arc<dyn BlockDevice>, queue: u16) -> Self {
        Self { device, queue, state: Arc::new(BlockingState { event_seq: AtomicU32::new(0), finished: Mutex::new(None) }) }
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// Fills `bytes` from sector `sector` on. Whole sectors only.
    ///
    /// # Errors
    /// Those of the device; `EINVAL` for a partial sector.
    pub fn read(&self, sector: u64, bytes: &mut [u8]) -> Result<(), Errno> {
        let mut at = 0;
        for (sector, sectors) in self.split(IoOp::Read, sector, bytes.len())? {
            let len = sectors as usize * SECTOR as usize;
            let slot = self.run(self.alloc_slot(), IoOp::Read, 0, sector, sectors)?;
            let copied = self.device.read(&slot, 0, &mut bytes[at..at + len]);
            self.device.free_slot(slot);
            copied?;
            at += len;
        }
        Ok(())
    }

    /// Writes `bytes` from sector `sector` on. Whole sectors only. `flags` are `UBLK_IO_F_*`.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn write(&self, sector: u64, bytes: &[u8], flags: u32) -> Result<(), Errno> {
        let mut at = 0;
        for (sector, sectors) in self.split(IoOp::Write, sector, bytes.len())? {
            let len = sectors as usize * SECTOR as usize;
            let slot = self.alloc_slot();
            if let Err(errno) = self.device.write(&slot, 0, &bytes[at..at + len]) {
                self.device.free_slot(slot);
                return Err(errno);
            }
            let slot = self.run(slot, IoOp::Write, flags, sector, sectors)?;
            self.device.free_slot(slot);
            at += len;
        }
        Ok(())
    }

    /// Runs a request without data: flush, discard, write zeroes.
    ///
    /// # Errors
    /// `EOPNOTSUPP` not supported by the device; those of the device.
    pub fn run_without_data(&self, op: IoOp, flags: u32, sector: u64, sectors: u64) -> Result<(), Errno> {
        if op == IoOp::Flush {
            return self.run(self.alloc_slot(), op, flags, 0, 0).map(|slot| self.device.free_slot(slot));
        }
        let limits = self.device.limits();
        if limits.max_sectors_of(op) == 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        for (sector, sectors) in limits.split(op, sector, sectors) {
            let slot = self.run(self.alloc_slot(), op, flags, sector, sectors)?;
            self.device.free_slot(slot);
        }
        Ok(())
    }

    fn split(&self, op: IoOp, sector: u64, len: usize) -> Result<impl Iterator<Item = (u64, u32)>, Errno> {
        let len = len as u64;
        if !len.is_multiple_of(SECTOR) {
            return Err(Errno::EINVAL);
        }
        Ok(self.device.limits().split(op, sector, len / SECTOR))
    }

    fn client(&self) -> Arc<dyn BlockClient> {
        Arc::clone(&self.state) as Arc<dyn BlockClient>
    }

    fn alloc_slot(&self) -> IoSlot {
        loop {
            let seen = self.state.event_seq.load(Acquire);
            match self.device.alloc_slot(self.queue, &self.client()) {
                Some(slot) => return slot,
                None => self.state.wait(seen),
            }
        }
    }

    /// Submits and waits. On an error the slot is freed.
    fn run(&self, slot: IoSlot, op: IoOp, flags: u32, sector: u64, sectors: u32) -> Result<IoSlot, Errno> {
        self.device.submit(slot, BlockRequest { op, flags, sector, sectors, data: DataLocation::Slot }, &self.client(), 0);
        self.device.unplug();
        loop {
            let seen = self.state.event_seq.load(Acquire);
            match self.state.finished.lock().take() {
                Some((slot, Ok(()))) => return Ok(slot),
                Some((slot, Err(errno))) => {
                    self.device.free_slot(slot);
                    return Err(errno);
                }
                None => {}
            }
            self.state.wait(seen);
        }
    }
}
