//! Registered buffers: ranges of the program's memory that fixed reads and writes name by index.
//!
//! The kernel pins their pages. Here they are only bounds: an address outside its buffer gets
//! `EFAULT`.

use alloc::sync::Arc;
use alloc::vec::Vec;
use uringlet_sys::Errno;

/// Most registered buffers of a ring.
pub(crate) const MAX: u32 = 1 << 14;
/// Largest registered buffer, bytes (1 GiB).
pub(crate) const MAX_LEN: u64 = 1 << 30;

/// A registered buffer. Requests in flight hold it beyond its slot.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BufferNode {
    pub(crate) base: u64,
    pub(crate) len: u64,
    /// Posted as a CQE's user_data once it is in no slot and no request holds it; 0 for none.
    pub(crate) tag: u64,
}

impl BufferNode {
    /// `EFAULT` unless the range lies inside.
    #[inline]
    pub(crate) fn check(&self, addr: u64, len: u64) -> Result<(), Errno> {
        let end = addr.checked_add(len).ok_or(Errno::EFAULT)?;
        if addr < self.base || end > self.base + self.len { Err(Errno::EFAULT) } else { Ok(()) }
    }
}

/// The ring's buffer table; a slot may be empty.
#[derive(Debug, Default)]
pub(crate) struct BufferTable {
    slots: Vec<Option<Arc<BufferNode>>>,
    pub(crate) is_registered: bool,
}

impl BufferTable {
    #[inline]
    pub(crate) fn get(&self, index: u16) -> Option<&Arc<BufferNode>> {
        self.slots.get(usize::from(index))?.as_ref()
    }

    pub(crate) fn len(&self) -> u32 {
        self.slots.len() as u32
    }

    pub(crate) fn install(&mut self, slots: Vec<Option<Arc<BufferNode>>>) {
        self.slots = slots;
        self.is_registered = true;
    }

    /// Empties the table; returns what was in it.
    pub(crate) fn remove_all(&mut self) -> Vec<Option<Arc<BufferNode>>> {
        self.is_registered = false;
        core::mem::take(&mut self.slots)
    }

    /// Puts `buffer` into a slot; returns the previous one.
    pub(crate) fn replace(&mut self, index: u32, buffer: Option<Arc<BufferNode>>) -> Option<Arc<BufferNode>> {
        let slot = self.slots.get_mut(index as usize)?;
        core::mem::replace(slot, buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_outside_the_buffer_fault() {
        let b = BufferNode { base: 4096, len: 100, tag: 0 };
        assert_eq!(b.check(4096, 100), Ok(()));
        assert_eq!(b.check(4095, 1), Err(Errno::EFAULT));
        assert_eq!(b.check(4096, 101), Err(Errno::EFAULT));
        assert_eq!(b.check(u64::MAX, 2), Err(Errno::EFAULT));
    }
}
