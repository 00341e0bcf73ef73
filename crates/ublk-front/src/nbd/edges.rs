//! Commands that do not begin and end at the device's blocks. Most clients never send one; those who did not ask for the block size may.
//!
//! They are done whole by the connection's own thread, one after the other: a read takes the blocks around it; a write reads the block at
//! each of its ends, puts its bytes in, and writes all of it.
//!
//! Between that reading and that writing nobody else may change these blocks, or what he wrote would be lost. The export's [`Gate`] sees to
//! it: every change passes through it, many at a time; who has an edge to write waits until they are over, and keeps others out.
//! - Who passes holds no slot yet, who keeps others out needs some: so nobody waits for the gate while he has what the other waits for.
//! - Who has passed has all of his data: a slow client keeps nobody out.
//! - `Differs:` changes by another front end do not pass through it: who writes through NBD parts of blocks that somebody else writes through
//!   `/dev/ublkbN` at the same moment may undo that.

use crate::sync::lock;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use uringlet_abi::ublk::iod;
use uringlet_sys::Errno;
use uringlet_ublk::blocking::BlockingClient;
use uringlet_ublk::frontend::{BlockDevice, BlockLimits, IoOp, SECTOR};

/// Zeroes that are written at once where the device has no better way.
const ZEROES: usize = 64 * 1024;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Gate {
    inside: Mutex<Inside>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct Inside {
    /// Changes under way.
    changes: u32,
    /// Somebody keeps all others out,
    is_held: bool,
    /// or wants to: no more changes begin.
    wanted: u32,
}

/// Nobody else changes the device until this is dropped.
#[derive(Debug)]
pub(super) struct Held<'a>(&'a Gate);

impl Gate {
    /// Begins a change, if nobody keeps it out. [`leave`](Self::leave) ends it.
    pub(super) fn try_enter(&self) -> bool {
        let mut inside = lock(&self.inside);
        let may = !inside.is_held && inside.wanted == 0;
        inside.changes += u32::from(may);
        may
    }

    /// The same, sooner or later.
    pub(super) fn enter(&self) {
        let inside = lock(&self.inside);
        let is_shut = |inside: &mut Inside| inside.is_held || inside.wanted > 0;
        self.news.wait_while(inside, is_shut).unwrap_or_else(PoisonError::into_inner).changes += 1;
    }

    pub(super) fn leave(&self) {
        let mut inside = lock(&self.inside);
        inside.changes -= 1;
        if inside.changes == 0 && inside.wanted > 0 {
            self.news.notify_all();
        }
    }

    /// Waits until no change is under way, and keeps others out.
    pub(super) fn hold(&self) -> Held<'_> {
        let mut inside = lock(&self.inside);
        inside.wanted += 1;
        let is_busy = |inside: &mut Inside| inside.is_held || inside.changes > 0;
        let mut inside = self.news.wait_while(inside, is_busy).unwrap_or_else(PoisonError::into_inner);
        inside.wanted -= 1;
        inside.is_held = true;
        Held(self)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        lock(&self.0.inside).is_held = false;
        self.0.news.notify_all();
    }
}

/// A device by bytes.
#[derive(Debug)]
pub(super) struct Bytes<'a> {
    local: BlockingClient,
    gate: &'a Gate,
    limits: BlockLimits,
    block: u64,
}

impl<'a> Bytes<'a> {
    /// `limits`: the device's, requests no longer than front ends make them.
    pub(super) fn new(device: &Arc<dyn BlockDevice>, queue: u16, gate: &'a Gate, limits: BlockLimits) -> Self {
        Self { local: BlockingClient::new(Arc::clone(device), queue), gate, limits, block: block_of(&limits) }
    }

    pub(super) fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>, Errno> {
        let (begin, end) = self.around(offset, len as u64);
        let mut bytes = vec![0; (end - begin) as usize];
        self.read_blocks(begin, &mut bytes)?;
        bytes.drain(..(offset - begin) as usize);
        bytes.truncate(len);
        Ok(bytes)
    }

    /// `flags`: FUA.
    pub(super) fn write(&self, offset: u64, data: &[u8], flags: u32) -> Result<(), Errno> {
        let held = self.gate.hold();
        self.write_held(&held, offset, data, flags)
    }

    /// `flags`: FUA, NOUNMAP.
    pub(super) fn write_zeroes(&self, offset: u64, len: u64, flags: u32) -> Result<(), Errno> {
        let held = self.gate.hold();
        let zeroes = [0; ZEROES];
        let plain = flags & iod::F_FUA;
        let end = offset + len;
        let (first, last) = (offset.next_multiple_of(self.block), end / self.block * self.block);
        if first >= last {
            return self.write_held(&held, offset, &zeroes[..len as usize], plain);
        }
        self.write_held(&held, offset, &zeroes[..(first - offset) as usize], plain)?;
        if self.limits.max_write_zeroes > 0 {
            self.local.run_without_data(IoOp::WriteZeroes, flags, first / SECTOR, (last - first) / SECTOR)?;
        } else {
            let step = ZEROES as u64 / self.block * self.block;
            let mut steps = (first..last).step_by(step as usize);
            steps.try_for_each(|at| self.write_blocks(at, &zeroes[..step.min(last - at) as usize], plain))?;
        }
        self.write_held(&held, last, &zeroes[..(end - last) as usize], plain)
    }

    fn around(&self, offset: u64, len: u64) -> (u64, u64) {
        (offset / self.block * self.block, (offset + len).next_multiple_of(self.block))
    }

    fn write_held(&self, _held: &Held<'_>, offset: u64, data: &[u8], flags: u32) -> Result<(), Errno> {
        if data.is_empty() {
            return Ok(());
        }
        let (begin, end) = self.around(offset, data.len() as u64);
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
        for (sector, sectors) in self.limits.pieces(IoOp::Read, at / SECTOR, rest.len() as u64 / SECTOR) {
            let (piece, tail) = rest.split_at_mut(sectors as usize * SECTOR as usize);
            self.local.read(sector, piece)?;
            rest = tail;
        }
        Ok(())
    }

    fn write_blocks(&self, at: u64, bytes: &[u8], flags: u32) -> Result<(), Errno> {
        let mut rest = bytes;
        for (sector, sectors) in self.limits.pieces(IoOp::Write, at / SECTOR, rest.len() as u64 / SECTOR) {
            let (piece, tail) = rest.split_at(sectors as usize * SECTOR as usize);
            self.local.write(sector, piece, flags)?;
            rest = tail;
        }
        Ok(())
    }
}

/// Bytes that a request begins and ends at multiples of.
pub(super) fn block_of(limits: &BlockLimits) -> u64 {
    u64::from(limits.logical_block).max(SECTOR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ram::{RamDevice, Shape};

    #[test]
    fn any_bytes_are_read_and_written() {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut below = move |end: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % end
        };
        for (logical_block, max_write_zeroes) in [(512, 64), (4096, 0), (4096, 1 << 20)] {
            let mut shape = Shape { threads: 0, ..Shape::with_size(1 << 18) };
            // A limit that is no multiple of the blocks is the reader's to round.
            shape.limits = BlockLimits { logical_block, max_write_zeroes, max_sectors: 24, ..shape.limits };
            let device = Arc::new(RamDevice::new(0, shape));
            let gate = Gate::default();
            let bytes = Bytes::new(&(Arc::clone(&device) as Arc<dyn BlockDevice>), 0, &gate, shape.limits);
            let mut model = vec![0; 1 << 18];
            for round in 0..400 {
                let len = if round % 3 == 0 { below(600) } else { below(40_000) } as usize + 1;
                let at = below((model.len() - len) as u64 + 1);
                let part = at as usize..at as usize + len;
                match round % 4 {
                    0 => {
                        bytes.write_zeroes(at, len as u64, 0).unwrap();
                        model[part].fill(0);
                    }
                    1 => assert!(bytes.read(at, len).unwrap() == model[part], "{len} bytes at {at}"),
                    _ => {
                        let data: Vec<u8> = (0..len).map(|i| (i as u64 + below(256)) as u8).collect();
                        bytes.write(at, &data, 0).unwrap();
                        model[part].copy_from_slice(&data);
                    }
                }
            }
            assert!(bytes.read(0, model.len()).unwrap() == model);
        }
    }

    #[test]
    fn who_holds_the_gate_is_alone() {
        let gate = Gate::default();
        let shared = Mutex::new((0_u32, 0_u32));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        if !gate.try_enter() {
                            gate.enter();
                        }
                        lock(&shared).0 += 1;
                        assert_eq!(lock(&shared).1, 0);
                        lock(&shared).0 -= 1;
                        gate.leave();
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let held = gate.hold();
                        lock(&shared).1 += 1;
                        assert_eq!(*lock(&shared), (0, 1));
                        lock(&shared).1 -= 1;
                        drop(held);
                    }
                });
            }
        });
    }
}
