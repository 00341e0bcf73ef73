//! The memory of requests in flight: one registered buffer each, with a guard behind it.

use crate::op::{FileOp, MAX_LEN};
use std::io;

/// Limit of requests in flight.
pub(crate) const SLOTS: usize = 64;
/// Bytes behind a buffer that no request may touch.
const GUARD: usize = 256;
const STRIDE: usize = MAX_LEN as usize + 4096;
const POISON: u8 = 0xa5;

/// A request in flight, and its expected outcome.
#[derive(Debug)]
pub(crate) struct BufferSlot {
    pub(crate) number: u64,
    pub(crate) file: usize,
    pub(crate) op: FileOp,
    /// The expected result of the CQE.
    pub(crate) expected: i32,
    /// The bytes that a read must return.
    pub(crate) content: Vec<u8>,
    /// Bytes of the buffer that the request uses.
    pub(crate) len: usize,
    pub(crate) iovecs: [libc::iovec; 4],
    pub(crate) state: SlotState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotState {
    Free,
    InFlight,
    /// The CQE came with the expected result.
    Done,
}

const NO_IOVEC: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

/// All slots and their memory.
#[derive(Debug)]
pub(crate) struct BufferSlots {
    memory: *mut u8,
    pub(crate) all: Box<[BufferSlot]>,
}

impl BufferSlots {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, nothing is replaced.
        let memory = unsafe { libc::mmap(std::ptr::null_mut(), SLOTS * STRIDE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let slot = || BufferSlot {
            number: 0,
            file: 0,
            op: FileOp::CheckSize,
            expected: 0,
            content: Vec::with_capacity(MAX_LEN as usize),
            len: 0,
            iovecs: [NO_IOVEC; 4],
            state: SlotState::Free,
        };
        Ok(Self { memory: memory.cast(), all: std::iter::repeat_with(slot).take(SLOTS).collect() })
    }

    pub(crate) fn free(&self) -> Option<usize> {
        self.all.iter().position(|slot| slot.state == SlotState::Free)
    }

    pub(crate) fn address(&self, slot: usize) -> *mut u8 {
        self.memory.wrapping_add(slot * STRIDE)
    }

    /// The buffers as the ring registers them.
    pub(crate) fn registration(&self) -> Vec<libc::iovec> {
        (0..SLOTS).map(|slot| libc::iovec { iov_base: self.address(slot).cast(), iov_len: MAX_LEN as usize }).collect()
    }

    /// The buffer with its guard. Only valid while no request uses it.
    fn bytes(&mut self, slot: usize) -> &mut [u8] {
        // SAFETY: inside the mapping; the borrow of `self` is the only one, and the caller
        // guarantees that no request uses the slot.
        unsafe { std::slice::from_raw_parts_mut(self.address(slot), MAX_LEN as usize + GUARD) }
    }

    /// Fills a buffer with bytes for a write that identify the operation.
    pub(crate) fn fill(&mut self, slot: usize, len: usize, number: u64) -> &[u8] {
        self.all[slot].len = len;
        let bytes = self.bytes(slot);
        for (i, word) in bytes[..len.next_multiple_of(8)].chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&(number << 16 | i as u64 & 0x7fff | 0x8000).to_le_bytes());
        }
        &bytes[..len]
    }

    /// Prepares a buffer for a read.
    pub(crate) fn poison(&mut self, slot: usize, len: usize) {
        self.all[slot].len = len;
        self.bytes(slot)[..len + GUARD].fill(POISON);
    }

    /// Compares the result of a read with the expected bytes, and checks the guard.
    pub(crate) fn difference(&mut self, slot: usize) -> Option<Mismatch> {
        let content = std::mem::take(&mut self.all[slot].content);
        let len = self.all[slot].len;
        let bytes = self.bytes(slot);
        let found = difference(&bytes[..content.len()], &content);
        let guard = bytes[len..len + GUARD].iter().all(|byte| *byte == POISON);
        self.all[slot].content = content;
        match found {
            None if !guard => Some(Mismatch { at: len, text: "bytes behind the buffer were overwritten".into() }),
            found => found,
        }
    }

    /// A free slot's buffer as scratch space.
    pub(crate) fn scratch(&mut self, slot: usize, len: usize) -> &mut [u8] {
        &mut self.bytes(slot)[..len]
    }

    /// Splits a buffer into four iovecs. `cuts` are the borders, in 256ths of the length.
    pub(crate) fn split(&mut self, slot: usize, len: usize, cuts: [u64; 3]) -> (*const libc::iovec, u32) {
        let base = self.address(slot);
        let mut cuts = cuts.map(|share| len * (share % 257) as usize / 256);
        cuts.sort_unstable();
        let ends = [cuts[0], cuts[1], cuts[2], len];
        let mut from = 0;
        for (iovec, end) in self.all[slot].iovecs.iter_mut().zip(ends) {
            *iovec = libc::iovec { iov_base: base.wrapping_add(from).cast(), iov_len: end - from };
            from = end;
        }
        (self.all[slot].iovecs.as_ptr(), 4)
    }
}

impl Drop for BufferSlots {
    fn drop(&mut self) {
        // SAFETY: our mapping; the rings that registered it are gone.
        unsafe { libc::munmap(self.memory.cast(), SLOTS * STRIDE) };
    }
}

/// The first difference.
#[derive(Debug)]
pub(crate) struct Mismatch {
    pub(crate) at: usize,
    pub(crate) text: String,
}

/// Compares, and shows both sides from the first difference on.
pub(crate) fn difference(found: &[u8], expected: &[u8]) -> Option<Mismatch> {
    if found == expected {
        return None;
    }
    let at = found.iter().zip(expected).position(|(a, b)| a != b).unwrap_or(found.len().min(expected.len()));
    let show = |bytes: &[u8]| bytes[at..].iter().take(24).map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
    let count = found.iter().zip(expected).filter(|(a, b)| a != b).count();
    let text =
        format!("{count} bytes differ, the first at {at} of {}\n  found    {}\n  expected {}", expected.len(), show(found), show(expected));
    Some(Mismatch { at, text })
}
