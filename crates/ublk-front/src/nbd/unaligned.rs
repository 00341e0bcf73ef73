//! Commands that are not aligned to the device's blocks. Most clients never send one; clients that
//! did not ask for the block size may.
//!
//! The connection's own thread executes them whole, one after the other. A read takes the blocks
//! around its range. A write is a read-modify-write: it reads the blocks at its two ends, inserts
//! its bytes and writes all blocks.
//!
//! Another change between that read and that write would be lost. Every change therefore holds the
//! export's [`RmwLock`]: aligned changes shared, an unaligned write exclusive.
//! - The lock is taken before a slot, never while holding one: an exclusive holder needs slots, so
//!   the reverse order could deadlock.
//! - It is taken when all data of the request has arrived, so a slow client does not hold it.
//! - `Differs:` changes by other front ends do not take it: an unaligned NBD write may undo a
//!   concurrent write to the same blocks through `/dev/ublkbN`.

use crate::sync::lock;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use uringlet_abi::ublk::iod;
use uringlet_sys::Errno;
use uringlet_ublk::blocking::BlockingClient;
use uringlet_ublk::frontend::{BlockDevice, BlockLimits, IoOp, SECTOR};

/// Bytes of zeroes in one write, for a device without write-zeroes.
const ZEROES: usize = 64 * 1024;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct RmwLock {
    state: Mutex<RmwState>,
    released: Condvar,
}

#[derive(Debug, Default)]
struct RmwState {
    /// Changes that hold it shared.
    shared: u32,
    /// A read-modify-write holds it.
    is_exclusive: bool,
    /// Read-modify-writes that wait; no shared holder is admitted meanwhile.
    exclusive_waiters: u32,
}

/// Holds the lock exclusively until dropped.
#[derive(Debug)]
pub(super) struct RmwGuard<'a>(&'a RmwLock);

impl RmwLock {
    /// Takes the lock shared without waiting. [`unlock_shared`](Self::unlock_shared) releases it.
    pub(super) fn try_lock_shared(&self) -> bool {
        let mut state = lock(&self.state);
        let is_free = !state.is_exclusive && state.exclusive_waiters == 0;
        state.shared += u32::from(is_free);
        is_free
    }

    /// Takes the lock shared.
    pub(super) fn lock_shared(&self) {
        let state = lock(&self.state);
        let is_locked = |state: &mut RmwState| state.is_exclusive || state.exclusive_waiters > 0;
        self.released.wait_while(state, is_locked).unwrap_or_else(PoisonError::into_inner).shared += 1;
    }

    pub(super) fn unlock_shared(&self) {
        let mut state = lock(&self.state);
        state.shared -= 1;
        if state.shared == 0 && state.exclusive_waiters > 0 {
            self.released.notify_all();
        }
    }

    /// Takes the lock exclusively.
    pub(super) fn lock_exclusive(&self) -> RmwGuard<'_> {
        let mut state = lock(&self.state);
        state.exclusive_waiters += 1;
        let is_busy = |state: &mut RmwState| state.is_exclusive || state.shared > 0;
        let mut state = self.released.wait_while(state, is_busy).unwrap_or_else(PoisonError::into_inner);
        state.exclusive_waiters -= 1;
        state.is_exclusive = true;
        RmwGuard(self)
    }
}

impl Drop for RmwGuard<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).is_exclusive = false;
        self.0.released.notify_all();
    }
}

/// A device addressed by bytes.
#[derive(Debug)]
pub(super) struct UnalignedIo<'a> {
    local: BlockingClient,
    rmw: &'a RmwLock,
    limits: BlockLimits,
    block: u64,
}

impl<'a> UnalignedIo<'a> {
    /// `limits`: the device's, with the front end's own limit on requests.
    pub(super) fn new(device: &Arc<dyn BlockDevice>, queue: u16, rmw: &'a RmwLock, limits: BlockLimits) -> Self {
        Self { local: BlockingClient::new(Arc::clone(device), queue), rmw, limits, block: block_size(&limits) }
    }

    pub(super) fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>, Errno> {
        let (begin, end) = self.block_range(offset, len as u64);
        let mut bytes = vec![0; (end - begin) as usize];
        self.read_blocks(begin, &mut bytes)?;
        bytes.drain(..(offset - begin) as usize);
        bytes.truncate(len);
        Ok(bytes)
    }

    /// `flags`: FUA.
    pub(super) fn write(&self, offset: u64, data: &[u8], flags: u32) -> Result<(), Errno> {
        let guard = self.rmw.lock_exclusive();
        self.write_locked(&guard, offset, data, flags)
    }

    /// `flags`: FUA, NOUNMAP.
    pub(super) fn write_zeroes(&self, offset: u64, len: u64, flags: u32) -> Result<(), Errno> {
        let guard = self.rmw.lock_exclusive();
        let zeroes = [0; ZEROES];
        let plain = flags & iod::F_FUA;
        let end = offset + len;
        let (first, last) = (offset.next_multiple_of(self.block), end / self.block * self.block);
        if first >= last {
            return self.write_locked(&guard, offset, &zeroes[..len as usize], plain);
        }
        self.write_locked(&guard, offset, &zeroes[..(first - offset) as usize], plain)?;
        if self.limits.max_write_zeroes > 0 {
            self.local.run_without_data(IoOp::WriteZeroes, flags, first / SECTOR, (last - first) / SECTOR)?;
        } else {
            let step = ZEROES as u64 / self.block * self.block;
            let mut steps = (first..last).step_by(step as usize);
            steps.try_for_each(|at| self.write_blocks(at, &zeroes[..step.min(last - at) as usize], plain))?;
        }
        self.write_locked(&guard, last, &zeroes[..(end - last) as usize], plain)
    }

    fn block_range(&self, offset: u64, len: u64) -> (u64, u64) {
        (offset / self.block * self.block, (offset + len).next_multiple_of(self.block))
    }

    fn write_locked(&self, _held: &RmwGuard<'_>, offset: u64, data: &[u8], flags: u32) -> Result<(), Errno> {
        if data.is_empty() {
            return Ok(());
        }
        let (begin, end) = self.block_range(offset, data.len() as u64);
        let (before, after) = ((offset - begin) as usize, (end - offset) as usize - data.len());
        let block = self.block as usize;
        let mut bytes = vec![0; (end - begin) as usize];
        let last = bytes.len() - block;
        if before > 0 {
            self.read_blocks(begin, &mut bytes[..block])?;
        }
        if after > 0 && (before == 0 || last > 0) {
            self.read_blocks(end - self.block, &mut bytes[last..])?;
        }
        bytes[before..before + data.len()].copy_from_slice(data);
        self.write_blocks(begin, &bytes, flags)
    }

    fn read_blocks(&self, at: u64, bytes: &mut [u8]) -> Result<(), Errno> {
        let mut rest = bytes;
        for (sector, sectors) in self.limits.split(IoOp::Read, at / SECTOR, rest.len() as u64 / SECTOR) {
            let (piece, tail) = rest.split_at_mut(sectors as usize * SECTOR as usize);
            self.local.read(sector, piece)?;
            rest = tail;
        }
        Ok(())
    }

    fn write_blocks(&self, at: u64, bytes: &[u8], flags: u32) -> Result<(), Errno> {
        let mut rest = bytes;
        for (sector, sectors) in self.limits.split(IoOp::Write, at / SECTOR, rest.len() as u64 / SECTOR) {
            let (piece, tail) = rest.split_at(sectors as usize * SECTOR as usize);
            self.local.write(sector, piece, flags)?;
            rest = tail;
        }
        Ok(())
    }
}

/// Requests begin and end at multiples of this, bytes.
pub(super) fn block_size(limits: &BlockLimits) -> u64 {
    u64::from(limits.logical_block).max(SECTOR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use uringlet_ublk_server::ram_device::{RamDevice, RamDeviceSpec};

    #[test]
    fn ranges_of_any_alignment_are_read_and_written() {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random_below = move |end: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % end
        };
        for (logical_block, max_write_zeroes) in [(512, 64), (4096, 0), (4096, 1 << 20)] {
            let mut spec = RamDeviceSpec { threads: 0, ..RamDeviceSpec::with_size(1 << 18) };
            // The reader rounds a limit that is no multiple of the block size.
            spec.limits = BlockLimits { logical_block, max_write_zeroes, max_sectors: 24, ..spec.limits };
            let device = Arc::new(RamDevice::new(0, spec));
            let rmw = RmwLock::default();
            let bytes = UnalignedIo::new(&(Arc::clone(&device) as Arc<dyn BlockDevice>), 0, &rmw, spec.limits);
            let mut model = vec![0; 1 << 18];
            for round in 0..400 {
                let len = if round % 3 == 0 { random_below(600) } else { random_below(40_000) } as usize + 1;
                let at = random_below((model.len() - len) as u64 + 1);
                let part = at as usize..at as usize + len;
                match round % 4 {
                    0 => {
                        bytes.write_zeroes(at, len as u64, 0).unwrap();
                        model[part].fill(0);
                    }
                    1 => assert!(bytes.read(at, len).unwrap() == model[part], "{len} bytes at {at}"),
                    _ => {
                        let data: Vec<u8> = (0..len).map(|i| (i as u64 + random_below(256)) as u8).collect();
                        bytes.write(at, &data, 0).unwrap();
                        model[part].copy_from_slice(&data);
                    }
                }
            }
            assert!(bytes.read(0, model.len()).unwrap() == model);
        }
    }

    #[test]
    fn an_exclusive_holder_excludes_all_others() {
        let rmw = RmwLock::default();
        let shared = Mutex::new((0_u32, 0_u32));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        if !rmw.try_lock_shared() {
                            rmw.lock_shared();
                        }
                        lock(&shared).0 += 1;
                        assert_eq!(lock(&shared).1, 0);
                        lock(&shared).0 -= 1;
                        rmw.unlock_shared();
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let guard = rmw.lock_exclusive();
                        lock(&shared).1 += 1;
                        assert_eq!(*lock(&shared), (0, 1));
                        lock(&shared).1 -= 1;
                        drop(guard);
                    }
                });
            }
        });
    }
}
