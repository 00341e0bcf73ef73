//! The memory of a trace: mapped by the tracer that makes it, and by the processes that write.

use super::layout::{LAYOUT_VERSION, MAGIC, TraceHeader, TracePolicy, TraceRecord, TraceSlot};
use super::owner::OwnerLock;
use super::queue::{Pushed, TraceQueue};
use crate::arch::PAGE_SIZE;
use crate::fd::EngineFd;
use crate::futex::{shared_wait, shared_wake};
use crate::linux::general::{
    AT_FDCWD, F_ADD_SEALS, F_GET_SEALS, F_SEAL_GROW, F_SEAL_SHRINK, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, MFD_ALLOW_SEALING,
    MFD_CLOEXEC,
};
use crate::shm_mapping::ShmMapping;
use crate::sync::AtomicU32;
use crate::{clock, io, process};
use core::ffi::CStr;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use syscalls::Errno;

/// A writer without room looks this often whether the tracer is there, ns.
const LOOK_NS: u64 = 20_000_000;
const MEBI: u32 = 1 << 20;

/// See the module.
#[derive(Debug)]
pub struct TraceBuffer {
    memory: ShmMapping,
    slots: u32,
    /// The tracer's descriptor.
    fd: Option<EngineFd>,
}

impl TraceBuffer {
    const fn len(slots: u32) -> usize {
        PAGE_SIZE + slots as usize * size_of::<TraceSlot>()
    }

    /// New memory with room for so many records, a power of two.
    ///
    /// # Errors
    /// `EINVAL` no power of two, or too many; those of memfd_create(2) and mmap(2).
    pub fn create(slots: u32, policy: TracePolicy) -> Result<Self, Errno> {
        if !slots.is_power_of_two() || slots > MEBI {
            return Err(Errno::EINVAL);
        }
        let fd = io::memfd_create(io::ptr_of_slice(b"uringlet-trace\0"), MFD_CLOEXEC | MFD_ALLOW_SEALING)?;
        let fd = EngineFd::adopt(io::number_of(fd));
        io::ftruncate(fd.number(), Self::len(slots) as i64)?;
        // A process that writes must not meet the end of the file.
        io::fcntl(fd.number(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW)?;
        let memory = ShmMapping::map_file(fd.number(), Self::len(slots))?;
        let buffer = Self { memory, slots, fd: Some(fd) };
        let header = buffer.header();
        header.slots.store(slots, Relaxed);
        header.flags.store(policy.flags, Relaxed);
        header.string_limit.store(policy.string_limit, Relaxed);
        header.layout.store(LAYOUT_VERSION, Relaxed);
        header.magic.store(MAGIC, Relaxed);
        buffer.queue().init();
        Ok(buffer)
    }

    /// Maps the memory that a tracer has made.
    ///
    /// # Errors
    /// Those of open(2): it is another namespace's, or another user's; `EINVAL` it is no trace of
    /// this version.
    pub fn open(path: &CStr) -> Result<Self, Errno> {
        let fd = io::openat(AT_FDCWD, io::ptr_of_slice(path.to_bytes_with_nul()), io::O_RDWR | io::O_CLOEXEC, 0)?;
        let fd = EngineFd::adopt(io::number_of(fd));
        let size = io::fstat(fd.number())?.size;
        let seals = io::fcntl(fd.number(), F_GET_SEALS, 0)? as u32;
        if size < PAGE_SIZE as u64 || seals & F_SEAL_SHRINK == 0 {
            return Err(Errno::EINVAL);
        }
        let head = Self { memory: ShmMapping::map_file(fd.number(), PAGE_SIZE)?, slots: 0, fd: None };
        let header = head.header();
        let slots = header.slots.load(Acquire);
        let is_known = header.magic.load(Relaxed) == MAGIC && header.layout.load(Relaxed) == LAYOUT_VERSION;
        if !is_known || !slots.is_power_of_two() || slots > MEBI || size != Self::len(slots) as u64 {
            return Err(Errno::EINVAL);
        }
        Ok(Self { memory: ShmMapping::map_file(fd.number(), Self::len(slots))?, slots, fd: None })
    }

    fn header(&self) -> &TraceHeader {
        // SAFETY: the mapping is a page at least, page aligned, and used as atomics only.
        unsafe { &*(self.memory.base() as *const TraceHeader) }
    }

    fn queue(&self) -> TraceQueue<'_> {
        // SAFETY: the mapping holds so many slots behind its first page; they are atomics only.
        let slots = unsafe { core::slice::from_raw_parts((self.memory.base() + PAGE_SIZE) as *const TraceSlot, self.slots as usize) };
        TraceQueue::new(self.header(), slots)
    }

    /// What the tracer wants.
    #[must_use]
    pub fn policy(&self) -> TracePolicy {
        let header = self.header();
        TracePolicy { flags: header.flags.load(Relaxed), string_limit: header.string_limit.load(Relaxed) }
    }

    /// Whether the tracer is there.
    #[must_use]
    pub fn has_reader(&self) -> bool {
        self.queue().has_reader()
    }

    /// The tracer's descriptor of the file. None where it was opened.
    #[must_use]
    pub fn number(&self) -> Option<i32> {
        self.fd.as_ref().map(EngineFd::number)
    }

    /// The calling thread reads this buffer until it ends, or [`leave`](Self::leave)s.
    #[must_use]
    pub fn own(&self) -> OwnerLock {
        // SAFETY: `OwnerLock` keeps no reference: the kernel checks the address, and the memory
        // stays mapped while the buffer lives, which the caller keeps longer than the lock.
        OwnerLock::take(&self.header().owner)
    }

    pub(super) fn push(&self, pid: u32, record: &TraceRecord) -> Pushed {
        self.queue().push(pid, record, |word, seen| {
            // The reader sleeps between its looks.
            self.wake_reader();
            let _ = shared_wait(address(word), seen, process::monotonic_ns() + LOOK_NS);
        })
    }

    fn wake_reader(&self) {
        let word = &self.header().full_seq;
        word.fetch_add(1, Relaxed);
        shared_wake(address(word), 1);
    }

    /// The next record, for the one reader. `head` is its position, 0 at first.
    pub fn pop(&self, head: &mut u64) -> Option<TraceRecord> {
        self.queue().pop(head)
    }

    /// The process that keeps the reader from the next record by not finishing it.
    #[must_use]
    pub fn unfinished(&self, head: u64) -> Option<u32> {
        self.queue().writer_of(head)
    }

    /// Gives up the unfinished record: its process is gone.
    pub fn bury(&self, head: u64) {
        self.queue().bury(head);
    }

    /// Lets writers go on that wait for room.
    pub fn announce_room(&self) {
        if self.queue().announce_room() {
            shared_wake(address(&self.header().room_seq), u32::MAX);
        }
    }

    /// The reader sleeps for so long, or until a writer has no room.
    pub fn sleep(&self, ns: u64) {
        let word = &self.header().full_seq;
        let _ = shared_wait(address(word), word.load(Relaxed), process::monotonic_ns() + ns);
    }

    /// Records that found no room.
    #[must_use]
    pub fn drops(&self) -> u64 {
        self.header().drops.load(Relaxed)
    }

    /// The reader leaves: processes that notice it later write nothing, and the memory is given
    /// back although they have it mapped.
    pub fn leave(&self) {
        self.header().owner.store(0, Relaxed);
        if let Some(fd) = self.number() {
            let _ = io::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, Self::len(self.slots) as i64);
        }
    }
}

fn address(word: &AtomicU32) -> usize {
    core::ptr::from_ref(word).addr()
}

/// A moment by both clocks, to translate [`clock::ticks`].
#[must_use]
pub fn now() -> (u64, u64) {
    (clock::ticks(), process::monotonic_ns())
}
