//! The memory a ring shares with its program: the two rings' words, the CQEs, the SQ array, the
//! SQEs.
//!
//! The engine makes no references to shared bytes, except to atomics. It keeps the sizes privately:
//! masks and entries in the shared words are for the program to read, and it may overwrite them.

use crate::biased_lock::BiasedLock;
use crate::left_timeouts::LeftTimeouts;
use crate::process_shared::ProcessShared;
use crate::remote_cancel::RemoteCancel;
use crate::shm_mapping::{PAGE, ShmMapping};
use crate::sync::AtomicU32;
use crate::user::UserPtr;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use syscalls::Errno;
use uringlet_abi::{Cqe, Sqe, layout};

/// A shared word of the ring, by its offset (`uringlet_abi::layout`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum RingField {
    /// Consumer index of the SQ.
    SqHead = layout::SQ_HEAD,
    /// Producer index of the SQ.
    SqTail = layout::SQ_TAIL,
    /// Consumer index of the CQ.
    CqHead = layout::CQ_HEAD,
    /// Producer index of the CQ.
    CqTail = layout::CQ_TAIL,
    /// SQ mask.
    SqMask = layout::SQ_RING_MASK,
    /// CQ mask.
    CqMask = layout::CQ_RING_MASK,
    /// SQ entries.
    SqEntries = layout::SQ_RING_ENTRIES,
    /// CQ entries.
    CqEntries = layout::CQ_RING_ENTRIES,
    /// SQEs dropped.
    SqDropped = layout::SQ_DROPPED,
    /// `IORING_SQ_*`.
    SqFlags = layout::SQ_FLAGS,
    /// `IORING_CQ_*`.
    CqFlags = layout::CQ_FLAGS,
    /// CQEs lost.
    CqOverflow = layout::CQ_OVERFLOW,
}

/// Size of a ring: all that determines its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// SQ entries, a power of two.
    pub sq_entries: u32,
    /// CQ entries, a power of two.
    pub cq_entries: u32,
    /// log2 of an SQE's size: 6 or 7.
    pub sqe_shift: u32,
    /// log2 of a CQE's size: 4 or 5.
    pub cqe_shift: u32,
    /// Whether an array of indexes selects the SQEs.
    pub has_sq_array: bool,
}

impl Geometry {
    /// Offset of the SQ array in the rings' mapping, bytes.
    #[must_use]
    pub const fn array_offset(&self) -> usize {
        (layout::CQES as usize + ((self.cq_entries as usize) << self.cqe_shift)).next_multiple_of(64)
    }

    /// Size of the rings' mapping, bytes.
    #[must_use]
    pub const fn rings_len(&self) -> usize {
        let array = if self.has_sq_array { self.sq_entries as usize * 4 } else { 0 };
        self.array_offset() + array
    }

    /// Size of the SQEs' mapping, bytes.
    #[must_use]
    pub const fn sqes_len(&self) -> usize {
        (self.sq_entries as usize) << self.sqe_shift
    }
}

/// See the module.
#[derive(Debug)]
pub struct RingMemory {
    rings: ShmMapping,
    sqes: ShmMapping,
    /// One mapping, as each costs a new ring a microsecond or more: the page of [`ProcessShared`],
    /// which the program does not see, the SQEs, the rings. Only that page if the program supplied
    /// the others.
    mapping: ShmMapping,
    /// After a resize: the mapping of the queues. Its first page is not used.
    queues: Option<ShmMapping>,
    geometry: Geometry,
    /// [`Geometry::array_offset`], which each SQE needs.
    array_offset: usize,
}

impl RingMemory {
    /// Fresh memory, mapped by the program through the ring's descriptor.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(geometry: Geometry) -> Result<Self, Errno> {
        let (mapping, [_, sqes, rings]) = ShmMapping::map_parts([PAGE, geometry.sqes_len(), geometry.rings_len()])?;
        let memory = Self { rings, sqes, mapping, queues: None, geometry, array_offset: geometry.array_offset() };
        memory.init();
        Ok(memory)
    }

    /// Memory that the program supplies (`IORING_SETUP_NO_MMAP`).
    ///
    /// # Errors
    /// `EINVAL` not page aligned, `EFAULT` not mapped writable.
    pub fn from_user(geometry: Geometry, rings: UserPtr, sqes: UserPtr) -> Result<Self, Errno> {
        let memory = Self {
            rings: ShmMapping::from_user(rings, geometry.rings_len())?,
            sqes: ShmMapping::from_user(sqes, geometry.sqes_len())?,
            mapping: ShmMapping::map(PAGE)?,
            queues: None,
            geometry,
            array_offset: geometry.array_offset(),
        };
        for word in [
            RingField::SqHead,
            RingField::SqTail,
            RingField::CqHead,
            RingField::CqTail,
            RingField::SqDropped,
            RingField::SqFlags,
            RingField::CqFlags,
            RingField::CqOverflow,
        ] {
            memory.word(word).store(0, Relaxed);
        }
        memory.init();
        Ok(memory)
    }

    /// A placeholder without memory. It must not be accessed.
    #[must_use]
    pub fn none() -> Self {
        let geometry = Geometry { sq_entries: 1, cq_entries: 1, sqe_shift: 6, cqe_shift: 4, has_sq_array: false };
        let [rings, sqes, mapping] = core::array::from_fn(|_| ShmMapping::none());
        Self { rings, sqes, mapping, queues: None, geometry, array_offset: 0 }
    }

    fn init(&self) {
        let g = &self.geometry;
        self.word(RingField::SqMask).store(g.sq_entries - 1, Relaxed);
        self.word(RingField::CqMask).store(g.cq_entries - 1, Relaxed);
        self.word(RingField::SqEntries).store(g.sq_entries, Relaxed);
        self.word(RingField::CqEntries).store(g.cq_entries, Relaxed);
    }

    /// The ring's size.
    #[inline]
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The lock between the processes that share the ring.
    #[inline]
    #[must_use]
    pub fn biased_lock(&self) -> &BiasedLock {
        &self.process_shared().lock
    }

    /// A cancel that a forked child asks of the ring's maker.
    #[must_use]
    pub fn remote_cancel(&self) -> &RemoteCancel {
        &self.process_shared().remote_cancel
    }

    /// The time-outs that processes have left to the ring's maker.
    #[must_use]
    pub fn left_timeouts(&self) -> &LeftTimeouts {
        &self.process_shared().left_timeouts
    }

    #[inline]
    fn process_shared(&self) -> &ProcessShared {
        // SAFETY: the first page of the engine's mapping, with no other use.
        unsafe { self.mapping.process_shared() }
    }

    /// A shared word.
    #[inline]
    #[must_use]
    pub fn word(&self, word: RingField) -> &AtomicU32 {
        // SAFETY: every RingField lies below layout::CQES, which every ring's mapping exceeds; it
        // is aligned.
        unsafe { self.rings.u32(word as usize) }
    }

    /// Entry `index` of the SQ array.
    #[inline(always)]
    #[must_use]
    pub fn sq_array(&self, index: u32) -> u32 {
        let index = index & (self.geometry.sq_entries - 1);
        // SAFETY: masked to the array's size; aligned.
        unsafe { self.rings.u32(self.array_offset + index as usize * 4) }.load(Relaxed)
    }

    /// SQE `index`, copied once: later changes by the program have no effect.
    #[inline(always)]
    #[must_use]
    pub fn sqe(&self, index: u32) -> Sqe {
        let index = index & (self.geometry.sq_entries - 1);
        let at = (index as usize) << self.geometry.sqe_shift;
        Sqe::from_words(core::array::from_fn(|i| self.sqe_word(at + i * 8)))
    }

    /// A word of an SQE, by its offset: a multiple of 8 below the SQEs' end.
    #[inline(always)]
    fn sqe_word(&self, at: usize) -> u64 {
        // SAFETY: the two callers pass words of an SQE whose index is masked to their number.
        unsafe { self.sqes.u64(at) }.load(Relaxed)
    }

    /// The 64 bytes behind the first half of SQE `index`, copied once: its second half, or the next
    /// entry where SQEs have 64 bytes. Empty if there is none.
    pub fn sqe_second_half(&self, index: u32) -> impl Iterator<Item = u64> {
        let index = index & (self.geometry.sq_entries - 1);
        let at = ((index as usize) << self.geometry.sqe_shift) + 64;
        let words = if at < self.geometry.sqes_len() { 8 } else { 0 };
        (0..words).map(move |i| self.sqe_word(at + i * 8))
    }

    /// Stores a CQE in slot `index`. The second half of a 32-byte CQE is zero.
    #[inline(always)]
    pub fn store_cqe(&self, index: u32, cqe: Cqe) {
        let index = index & (self.geometry.cq_entries - 1);
        let at = layout::CQES as usize + ((index as usize) << self.geometry.cqe_shift);
        // SAFETY: masked to the number of CQEs, 16 or 32 bytes each as the shift says, 8-aligned.
        unsafe {
            self.rings.u64(at).store(cqe.user_data, Relaxed);
            self.rings.u64(at + 8).store(u64::from(cqe.res as u32) | u64::from(cqe.flags) << 32, Relaxed);
            if self.geometry.cqe_shift == 5 {
                self.rings.u64(at + 16).store(0, Relaxed);
                self.rings.u64(at + 24).store(0, Relaxed);
            }
        }
    }

    /// Stores the second half of the CQE in slot `index`: where CQEs have 16 bytes, in the slot
    /// behind it, which must not be beyond the last one.
    #[cold]
    pub fn store_cqe_extra(&self, index: u32, extra: [u64; 2]) {
        let last = (self.geometry.cq_entries << (self.geometry.cqe_shift - 4)) - 1;
        let half = ((index & (self.geometry.cq_entries - 1)) << (self.geometry.cqe_shift - 4)) + 1;
        let at = layout::CQES as usize + (half.min(last) as usize) * 16;
        for (i, word) in extra.into_iter().enumerate() {
            // SAFETY: at most the last 16 bytes of the CQEs; 8-aligned.
            unsafe { self.rings.u64(at + i * 8) }.store(word, Relaxed);
        }
    }

    /// The flags of the CQE in slot `index`. The program may have overwritten them.
    #[must_use]
    pub fn cqe_flags(&self, index: u32) -> u32 {
        // SAFETY: the second word of a CQE whose index is masked to their number.
        let word = unsafe { self.rings.u64(self.cqe_at(index) + 8) }.load(Relaxed);
        (word >> 32) as u32
    }

    fn cqe_at(&self, index: u32) -> usize {
        let index = index & (self.geometry.cq_entries - 1);
        layout::CQES as usize + ((index as usize) << self.geometry.cqe_shift)
    }

    /// Copies the CQE of queue position `at` from other memory, with CQEs of the same size.
    pub fn copy_cqe(&self, from: &Self, at: u32) {
        let (source, target) = (from.cqe_at(at), self.cqe_at(at));
        for offset in (0..1 << self.geometry.cqe_shift.min(from.geometry.cqe_shift)).step_by(8) {
            // SAFETY: words of two CQEs, each masked to its queue; 8-aligned.
            let (source, target) = unsafe { (from.rings.u64(source + offset), self.rings.u64(target + offset)) };
            target.store(source.load(Relaxed), Relaxed);
        }
    }

    /// Copies the SQE of queue position `at` from other memory, with SQEs of the same size.
    pub fn copy_sqe(&self, from: &Self, at: u32) {
        let place = |memory: &Self| ((at & (memory.geometry.sq_entries - 1)) as usize) << memory.geometry.sqe_shift;
        let (source, target) = (place(from), place(self));
        for offset in (0..1 << self.geometry.sqe_shift.min(from.geometry.sqe_shift)).step_by(8) {
            // SAFETY: as above, of two SQEs.
            let (source, target) = unsafe { (from.sqes.u64(source + offset), self.sqes.u64(target + offset)) };
            target.store(source.load(Relaxed), Relaxed);
        }
    }

    /// Takes the queues of `new` in place of its own, and keeps what processes share. The program's
    /// mappings of the former queues stay.
    pub fn take_queues(&mut self, new: Self) {
        let Self { rings, sqes, mapping, queues: _, geometry, array_offset } = new;
        (self.rings, self.sqes, self.queues) = (rings, sqes, Some(mapping));
        (self.geometry, self.array_offset) = (geometry, array_offset);
    }

    /// mmap(2) of the ring's descriptor: maps the rings or the SQEs for the program.
    ///
    /// # Errors
    /// `ENOMEM` for an unknown offset, or memory that is the program's own; `EINVAL` for no length.
    pub fn map_for_program(&self, offset: u64, len: usize) -> Result<usize, Errno> {
        let part = match offset & layout::OFF_MMAP_MASK {
            layout::OFF_SQ_RING | layout::OFF_CQ_RING => &self.rings,
            layout::OFF_SQES => &self.sqes,
            _ => return Err(Errno::ENOMEM),
        };
        self.queues.as_ref().unwrap_or(&self.mapping).map_part_again(part, len)
    }
}

/// The program's accesses to its mapping of the same memory, for models.
#[cfg(loom)]
impl RingMemory {
    pub(crate) fn mapped_again(&self) -> Self {
        Self {
            rings: self.rings.clone(),
            sqes: self.sqes.clone(),
            mapping: ShmMapping::none(),
            queues: None,
            geometry: self.geometry,
            array_offset: self.array_offset,
        }
    }

    pub(crate) fn write_sqe(&self, at: u32, index: u32, sqe: &Sqe) {
        for (i, word) in sqe.to_words().into_iter().enumerate() {
            // SAFETY: no requirement in a model.
            unsafe { self.sqes.u64(((index as usize) << self.geometry.sqe_shift) + i * 8) }.store(word, Relaxed);
        }
        if self.geometry.has_sq_array {
            let at = (at & (self.geometry.sq_entries - 1)) as usize;
            // SAFETY: as above.
            unsafe { self.rings.u32(self.geometry.array_offset() + at * 4) }.store(index, Relaxed);
        }
    }

    pub(crate) fn read_cqe(&self, index: u32) -> Cqe {
        let index = (index & (self.geometry.cq_entries - 1)) as usize;
        let at = layout::CQES as usize + (index << self.geometry.cqe_shift);
        // SAFETY: as above.
        let [user_data, rest] = [0, 8].map(|i| unsafe { self.rings.u64(at + i) }.load(Relaxed));
        Cqe { user_data, res: rest as i32, flags: (rest >> 32) as u32 }
    }
}

/// Memory for arguments that a program registers: of the engine's, which the program maps, or
/// supplied by the program.
#[derive(Debug)]
pub struct RegionMemory {
    mapping: ShmMapping,
}

impl RegionMemory {
    /// Memory of the engine's.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(len: usize) -> Result<Self, Errno> {
        Ok(Self { mapping: ShmMapping::map(len)? })
    }

    /// Memory that the program supplies.
    ///
    /// # Errors
    /// `EINVAL` not page aligned, `EFAULT` not mapped writable.
    pub fn from_user(addr: UserPtr, len: usize) -> Result<Self, Errno> {
        Ok(Self { mapping: ShmMapping::from_user(addr, len)? })
    }

    /// The address of its first byte. The program may have unmapped memory that it supplied.
    #[must_use]
    pub fn address(&self) -> UserPtr {
        UserPtr::new(self.mapping.base())
    }

    /// mmap(2) of this memory.
    ///
    /// # Errors
    /// `ENOMEM` for memory of the program's own; `EINVAL` for no length.
    pub fn map_for_program(&self, len: usize) -> Result<usize, Errno> {
        self.mapping.map_again(len)
    }
}

/// Memory of a ring of provided buffers: allocated by the engine (`IOU_PBUF_RING_MMAP`), or
/// supplied by the program.
#[derive(Debug)]
pub struct BufRingMemory {
    mapping: ShmMapping,
    entries: u32,
}

/// One provided buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProvidedBuf {
    /// Address.
    pub addr: u64,
    /// Length, bytes.
    pub len: u32,
    /// Buffer id.
    pub bid: u16,
}

impl BufRingMemory {
    const ENTRY: usize = 16;

    /// Memory of the engine's, which the program maps.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(entries: u32) -> Result<Self, Errno> {
        Ok(Self { mapping: ShmMapping::map(entries as usize * Self::ENTRY)?, entries })
    }

    /// Memory that the program supplies.
    ///
    /// # Errors
    /// `EINVAL` not page aligned, `EFAULT` not mapped writable.
    pub fn from_user(addr: UserPtr, entries: u32) -> Result<Self, Errno> {
        Ok(Self { mapping: ShmMapping::from_user(addr, entries as usize * Self::ENTRY)?, entries })
    }

    /// Number of entries, a power of two.
    #[must_use]
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// The producer's index: 16 bits in the otherwise unused bytes of the first entry.
    #[must_use]
    pub fn tail(&self) -> u16 {
        // SAFETY: bytes 12..16 of the first entry hold its buffer id and, above it, the tail;
        // aligned.
        let word = unsafe { self.mapping.u32(12) }.load(Acquire);
        (word >> 16) as u16
    }

    /// Entry `index` (masked).
    #[must_use]
    pub fn entry(&self, index: u16) -> ProvidedBuf {
        let at = (u32::from(index) & (self.entries - 1)) as usize * Self::ENTRY;
        // SAFETY: masked to the number of entries, 16 bytes each, 8-aligned.
        let (addr, rest) = unsafe { (self.mapping.u64(at).load(Relaxed), self.mapping.u64(at + 8).load(Relaxed)) };
        ProvidedBuf { addr, len: rest as u32, bid: (rest >> 32) as u16 }
    }

    /// Changes address and length of entry `index` to what is left of it (incremental consumption).
    pub fn set_entry(&self, index: u16, addr: u64, len: u32) {
        let at = (u32::from(index) & (self.entries - 1)) as usize * Self::ENTRY;
        // SAFETY: as in `entry`; the length is the low half of the second word.
        unsafe {
            self.mapping.u64(at).store(addr, Relaxed);
            self.mapping.u32(at + 8).store(len, Relaxed);
        }
    }

    /// mmap(2) of this buffer ring.
    ///
    /// # Errors
    /// `ENOMEM` for memory of the program's own; `EINVAL` for no length.
    pub fn map_for_program(&self, len: usize) -> Result<usize, Errno> {
        self.mapping.map_again(len)
    }
}
