//! A ring of provided buffers.

use uringlet_sys::ring_memory::BufRingMemory;

/// See the module.
#[derive(Debug)]
pub(super) struct BufRing {
    pub(super) memory: BufRingMemory,
    pub(super) head: u16,
    pub(super) is_incremental: bool,
    /// Incremental: a buffer with fewer bytes left is used up. At least 1.
    pub(super) min_left: u32,
    pub(super) is_mmap: bool,
    /// Tells this ring from an earlier one of the same group.
    pub(super) registration: u32,
}

impl BufRing {
    /// `n` bytes of the buffer at the head are used. It stays at the head while enough bytes of
    /// it are left.
    pub(super) fn consume(&mut self, n: u32) {
        if self.is_incremental {
            let entry = self.memory.entry(self.head);
            let left = entry.len.saturating_sub(n);
            if left >= self.min_left || n == 0 && left > 0 {
                self.memory.set_entry(self.head, entry.addr.wrapping_add(u64::from(n)), left);
                return;
            }
            self.memory.set_entry(self.head, entry.addr, 0);
        }
        self.head = self.head.wrapping_add(1);
    }
}
