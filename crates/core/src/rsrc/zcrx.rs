//! Instances of zero-copy receive without a network device (`IORING_REGISTER_ZCRX_IFQ`): data is
//! copied to the buffers of an area, and the program returns buffers through a refill ring.
//!
//! Where a buffer of an instance is:
//!
//! ```text
//!   free --take--> the receive's, under this holding of the ring's lock
//!    ^               |-- give:     the program's, by a CQE that holds its offset
//!    |               +-- put_back: free
//!    +--refill-- an entry of the refill ring names it
//! ```
//!
//! The program writes entries, then the tail; the engine reads them, then writes the head. Nothing
//! in that memory is trusted: an entry returns a buffer only if the program has that buffer. The
//! ring is read when it is flushed (`ZCRX_CTRL_FLUSH_RQ`), and when no buffer is free.
//!
//! An instance may be exported to other rings (`ZCRX_CTRL_EXPORT`). It has a lock of its own, which
//! is taken under a ring's lock, and under which no other lock is taken.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Acquire, Release};
use core::sync::atomic::fence;
use uringlet_abi::layout;
use uringlet_abi::register::ZcrxRefill;
use uringlet_sys::lock::Mutex;
use uringlet_sys::ring_memory::RegionMemory;
use uringlet_sys::{Errno, UserPtr, user};

/// Size of a buffer, bytes.
pub(crate) const BUFFER: u32 = 4096;

/// An instance, which ends with the last ring and the last descriptor that has it.
pub(crate) type SharedZcrx = Arc<Mutex<ZcrxInstance>>;

/// The instances of a ring, by id.
#[derive(Debug, Default)]
pub(crate) struct ZcrxTable {
    instances: Vec<RingInstance>,
}

/// An instance as a ring has it.
#[derive(Debug)]
struct RingInstance {
    shared: SharedZcrx,
    /// A receive of the ring waits for buffers, or for room in the CQ.
    has_starved: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct ZcrxInstance {
    area: UserPtr,
    /// The last one is the next to be taken.
    free: Vec<u32>,
    /// Of each buffer, whether the program has it.
    is_given: Vec<bool>,
    refill: RefillRing,
}

/// A refill ring: its memory has the words [`layout::ZCRX_HEAD`] and [`layout::ZCRX_TAIL`], and
/// entries from [`layout::ZCRX_RQES`] on.
#[derive(Debug)]
pub(crate) struct RefillRing {
    memory: RegionMemory,
    /// A power of two.
    entries: u32,
    head: u32,
}

impl ZcrxTable {
    /// The id that the next instance gets.
    pub(crate) fn next_id(&self) -> u32 {
        u32::try_from(self.instances.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn push(&mut self, shared: SharedZcrx) {
        self.instances.push(RingInstance { shared, has_starved: false });
    }

    pub(crate) fn contains(&self, id: u32) -> bool {
        id < self.next_id()
    }

    pub(crate) fn get(&self, id: u32) -> Option<SharedZcrx> {
        self.instances.get(id as usize).map(|instance| Arc::clone(&instance.shared))
    }

    /// A receive waits for buffers of an instance, or for room in the CQ.
    pub(crate) fn note_starved(&mut self, id: u32) {
        if let Some(instance) = self.instances.get_mut(id as usize) {
            instance.has_starved = true;
        }
    }

    #[inline]
    pub(crate) fn has_instances(&self) -> bool {
        !self.instances.is_empty()
    }

    /// Whether starved receives of some instance may go on, because it has buffers again. They
    /// count as starved no longer.
    pub(crate) fn take_revived(&mut self) -> bool {
        let mut any = false;
        for instance in &mut self.instances {
            if instance.has_starved && instance.shared.lock().has_free() {
                instance.has_starved = false;
                any = true;
            }
        }
        any
    }

    /// mmap(2) of the ring's descriptor at [`layout::OFF_ZCRX_REGION`]: maps the refill ring of the
    /// instance that the offset names.
    ///
    /// # Errors
    /// `ENOMEM` (as the kernel) if there is no such instance, or its ring lies in the program's
    /// memory.
    pub(crate) fn map_for_program(&self, offset: u64, len: usize) -> Result<usize, Errno> {
        let id = usize::try_from((offset & !layout::OFF_MMAP_MASK) >> layout::OFF_ZCRX_SHIFT).map_err(|_| Errno::ENOMEM)?;
        let instance = self.instances.get(id).ok_or(Errno::ENOMEM)?;
        instance.shared.lock().refill.memory.map_for_program(len)
    }
}

impl ZcrxInstance {
    /// An area of `buffers` buffers, all of them free.
    pub(crate) fn new(area: UserPtr, buffers: u32, refill: RefillRing) -> Self {
        Self { area, free: (0..buffers).collect(), is_given: alloc::vec![false; buffers as usize], refill }
    }

    /// Takes at most `most` free buffers.
    pub(crate) fn take(&mut self, most: usize) -> Vec<u32> {
        if !self.has_free() {
            return Vec::new();
        }
        let first = self.free.len().saturating_sub(most);
        let mut taken = self.free.split_off(first);
        taken.reverse();
        taken
    }

    /// Whether a buffer is free, after a look at the refill ring if there was none.
    pub(crate) fn has_free(&mut self) -> bool {
        if self.free.is_empty() {
            // The program may have unmapped the ring: then nothing comes back.
            let _ = self.refill();
        }
        !self.free.is_empty()
    }

    /// The program has a buffer from now on. Returns the buffer's offset in the area.
    pub(crate) fn give(&mut self, buffer: u32) -> u64 {
        if let Some(is_given) = self.is_given.get_mut(buffer as usize) {
            *is_given = true;
        }
        u64::from(buffer) * u64::from(BUFFER)
    }

    /// Returns buffers that were taken last and hold nothing.
    pub(crate) fn put_back(&mut self, buffers: &[u32]) {
        self.free.extend(buffers.iter().rev());
    }

    /// The address of a buffer.
    pub(crate) fn address(&self, buffer: u32) -> UserPtr {
        self.area.add(buffer as usize * BUFFER as usize)
    }

    /// Reads the refill ring: returned buffers are free. A malformed entry ends the pass, and is
    /// consumed.
    ///
    /// # Errors
    /// `EFAULT` the program has unmapped the ring.
    pub(crate) fn refill(&mut self) -> Result<(), Errno> {
        let mut left = self.refill.pending()?;
        while left > 0 {
            let entries = self.refill.read(left)?;
            left = left.saturating_sub(u32::try_from(entries.len()).unwrap_or(u32::MAX));
            let (mut consumed, mut is_malformed) = (0, false);
            for entry in entries {
                consumed += 1;
                match self.buffer_of(entry) {
                    Some(buffer) => self.free_given(buffer),
                    None => {
                        is_malformed = true;
                        break;
                    }
                }
            }
            self.refill.consume(consumed)?;
            if is_malformed {
                break;
            }
        }
        Ok(())
    }

    /// The buffer that an entry names.
    fn buffer_of(&self, entry: ZcrxRefill) -> Option<u32> {
        let (area, offset) = (entry.off >> layout::ZCRX_AREA_SHIFT, entry.off & ((1 << layout::ZCRX_AREA_SHIFT) - 1));
        let buffer = u32::try_from(offset / u64::from(BUFFER)).ok()?;
        (entry.pad == 0 && area == 0 && (buffer as usize) < self.is_given.len()).then_some(buffer)
    }

    fn free_given(&mut self, buffer: u32) {
        if let Some(is_given) = self.is_given.get_mut(buffer as usize)
            && core::mem::take(is_given)
        {
            self.free.push(buffer);
        }
    }
}

impl RefillRing {
    /// A ring of `entries`, a power of two.
    pub(crate) fn new(memory: RegionMemory, entries: u32) -> Self {
        Self { memory, entries, head: 0 }
    }

    fn at(&self, offset: u32) -> UserPtr {
        self.memory.address().add(offset as usize)
    }

    /// How many entries were not read yet.
    fn pending(&self) -> Result<u32, Errno> {
        let tail: u32 = user::read(self.at(layout::ZCRX_TAIL))?;
        // Acquire: the entries are read after the tail that the program has released.
        fence(Acquire);
        Ok(tail.wrapping_sub(self.head).min(self.entries))
    }

    /// The next entries, at most `most`, and none from beyond the end of the ring.
    fn read(&self, most: u32) -> Result<Vec<ZcrxRefill>, Errno> {
        const BATCH: u32 = 64;
        let first = self.head & (self.entries - 1);
        let n = most.min(BATCH).min(self.entries - first) as usize;
        let mut entries = alloc::vec![ZcrxRefill::default(); n];
        user::read_slice(&mut entries, self.at(layout::ZCRX_RQES).add(first as usize * size_of::<ZcrxRefill>()))?;
        Ok(entries)
    }

    fn consume(&mut self, n: u32) -> Result<(), Errno> {
        self.head = self.head.wrapping_add(n);
        // Release: the entries were read before the program may write new ones.
        fence(Release);
        user::write(self.at(layout::ZCRX_HEAD), &self.head)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn instance(buffers: u32) -> ZcrxInstance {
        ZcrxInstance::new(UserPtr::at(0x10000), buffers, RefillRing::new(RegionMemory::new(4096).unwrap(), 4))
    }

    /// The program's side: writes entries, then the tail.
    fn write(instance: &ZcrxInstance, tail: u32, entries: &[(u64, u32)]) {
        let ring = &instance.refill;
        for (at, &(off, pad)) in (tail..).zip(entries) {
            user::write(ring.at(layout::ZCRX_RQES).add((at & 3) as usize * 16), &ZcrxRefill { off, len: 1, pad }).unwrap();
        }
        user::write(ring.at(layout::ZCRX_TAIL), &tail.wrapping_add(u32::try_from(entries.len()).unwrap())).unwrap();
    }

    fn head(instance: &ZcrxInstance) -> u32 {
        user::read(instance.refill.at(layout::ZCRX_HEAD)).unwrap()
    }

    #[test]
    fn buffers_come_back_through_the_ring_and_around_its_end() {
        let mut zcrx = instance(3);
        for round in 0..50_u32 {
            assert_eq!(zcrx.take(5).len(), 3);
            assert_eq!(zcrx.take(1), [0_u32; 0]);
            let offsets: Vec<(u64, u32)> = [1, 0, 2].iter().map(|&buffer| (zcrx.give(buffer) + 5, 0)).collect();
            write(&zcrx, round * 3, &offsets);
            assert_eq!(zcrx.take(1), [2]);
            assert_eq!(head(&zcrx), round * 3 + 3);
            zcrx.put_back(&[2]);
        }
    }

    #[test]
    fn only_what_the_program_has_is_returned() {
        let mut zcrx = instance(3);
        let taken = zcrx.take(2);
        assert_eq!(taken, [2, 1]);
        zcrx.give(2);
        zcrx.put_back(&[1]);
        // Free, the program's, the same again.
        write(&zcrx, 0, &[(4096, 0), (8192, 0), (8192, 0)]);
        assert_eq!(zcrx.refill(), Ok(()));
        assert_eq!((zcrx.free.clone(), head(&zcrx)), ([0, 1, 2].into(), 3));
    }

    #[test]
    fn a_malformed_entry_ends_the_pass() {
        for bad in [(3 * 4096, 0), (1 << 48, 0), (0, 1), (u64::MAX, 0), ((1 << 48) - 1, 0)] {
            let mut zcrx = instance(3);
            assert_eq!(zcrx.take(3), [2, 1, 0]);
            assert_eq!([0, 1, 2].map(|buffer| zcrx.give(buffer)), [0, 4096, 8192]);
            write(&zcrx, 0, &[(0, 0), bad, (4096, 0)]);
            zcrx.refill().unwrap();
            assert_eq!((zcrx.free.clone(), head(&zcrx)), ([0].into(), 2), "{bad:?}");
            zcrx.refill().unwrap();
            assert_eq!((zcrx.free.clone(), head(&zcrx)), ([0, 1].into(), 3), "{bad:?}");
        }
    }

    #[test]
    fn a_wrong_tail_means_at_most_a_full_ring() {
        let mut zcrx = instance(3);
        zcrx.take(3);
        zcrx.give(0);
        user::write(zcrx.refill.at(layout::ZCRX_TAIL), &u32::MAX).unwrap();
        zcrx.refill().unwrap();
        assert_eq!((zcrx.free.clone(), head(&zcrx)), ([0].into(), 4));
    }

    #[test]
    fn starved_receives_go_on_once_there_are_buffers() {
        let mut table = ZcrxTable::default();
        table.push(Arc::new(Mutex::new(instance(1))));
        assert!(!table.take_revived());
        let shared = table.get(0).unwrap();
        shared.lock().take(1);
        shared.lock().give(0);
        table.note_starved(0);
        assert!(!table.take_revived());
        write(&shared.lock(), 0, &[(0, 0)]);
        assert!(table.take_revived());
        assert!(!table.take_revived());
    }
}
