//! The memory of a ring, and the two queues in it: one half of the protocol of
//! `<linux/io_uring.h>`; the other is the kernel's or the engine's.
//!
//! ```text
//!   SQ   the program: SQE, then tail (release)      the ring: tail (acquire), SQE, then head (release)
//!   CQ   the program: tail (acquire), CQE, then head (release)      the ring: CQE, then tail (release)
//! ```

use std::fmt;
use std::io;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU32, fence};

use io_uring::{cqueue, squeue};
use uringlet_abi::{UringParams, layout, sq_flags};
use uringlet_sys::mm;

use crate::backend::RingCalls;

const _: () = assert!(size_of::<squeue::Entry>() == size_of::<uringlet_abi::Sqe>());
const _: () = assert!(size_of::<cqueue::Entry>() == size_of::<uringlet_abi::Cqe>());

/// The SQ has no room: submit first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueFull;

impl fmt::Display for QueueFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the submission queue is full: submit first")
    }
}

impl std::error::Error for QueueFull {}

/// A mapping of a ring. Unmapped when dropped.
struct RingMapping {
    base: usize,
    len: usize,
}

impl RingMapping {
    fn new(calls: RingCalls, fd: i32, len: usize, offset: u64) -> io::Result<Self> {
        calls.map(fd, len, offset).map(|base| Self { base, len })
    }

    fn at<T>(&self, offset: usize) -> *mut T {
        debug_assert!(offset < self.len);
        std::ptr::with_exposed_provenance_mut(self.base + offset)
    }
}

impl Drop for RingMapping {
    fn drop(&mut self) {
        // SAFETY: made by `new`. The queues, which alone have its addresses, are dropped with it.
        let _ = unsafe { mm::unmap(self.base, self.len) };
    }
}

/// The two queues.
pub(crate) struct Queues {
    rings: RingMapping,
    sqes: RingMapping,
    params: UringParams,
    /// SQEs up to here are written.
    sq_tail: u32,
}

impl Queues {
    /// Maps the queues of a ring that was made with these parameters.
    pub(crate) fn map(calls: RingCalls, fd: i32, params: UringParams) -> io::Result<Self> {
        let [sq, cq] = [params.sq_entries, params.cq_entries].map(|entries| entries as usize);
        let sq_end = params.sq_off.array as usize + sq * size_of::<u32>();
        let cq_end = params.cq_off.cqes as usize + cq * size_of::<cqueue::Entry>();
        let rings = RingMapping::new(calls, fd, sq_end.max(cq_end), layout::OFF_SQ_RING)?;
        let sqes = RingMapping::new(calls, fd, sq * size_of::<squeue::Entry>(), layout::OFF_SQES)?;
        let queues = Self { rings, sqes, params, sq_tail: 0 };
        // Each slot of the array names the SQE of the same number, for good.
        for index in 0..params.sq_entries {
            queues.word(params.sq_off.array + 4 * index).store(index, Relaxed);
        }
        Ok(queues)
    }

    fn word(&self, offset: u32) -> &AtomicU32 {
        // SAFETY: a word of the mapping, by the ring's own offsets. Both sides access it as an
        // atomic.
        unsafe { AtomicU32::from_ptr(self.rings.at(offset as usize)) }
    }

    /// SQEs that there is room for.
    pub(crate) fn sq_room(&self) -> u32 {
        // Pairs with the ring's release: it has read the SQE that is overwritten next.
        let head = self.word(self.params.sq_off.head).load(Acquire);
        self.params.sq_entries - self.sq_tail.wrapping_sub(head)
    }

    /// Writes an SQE. It is published by [`publish`](Self::publish).
    pub(crate) fn push(&mut self, entry: &squeue::Entry) -> Result<(), QueueFull> {
        if self.sq_room() == 0 {
            return Err(QueueFull);
        }
        let slot = self.sq_slot(self.sq_tail);
        // SAFETY: a slot that the ring does not read before it is published.
        unsafe { slot.write(entry.clone()) };
        self.sq_tail = self.sq_tail.wrapping_add(1);
        Ok(())
    }

    fn sq_slot(&self, position: u32) -> *mut squeue::Entry {
        let index = (position & (self.params.sq_entries - 1)) as usize;
        self.sqes.at(index * size_of::<squeue::Entry>())
    }

    /// Publishes what was pushed. Returns how many SQEs the ring has not consumed.
    pub(crate) fn publish(&mut self) -> u32 {
        self.word(self.params.sq_off.tail).store(self.sq_tail, Release);
        self.sq_tail.wrapping_sub(self.word(self.params.sq_off.head).load(Relaxed))
    }

    /// Whether the thread of SQPOLL sleeps, and has to be woken for what was published.
    pub(crate) fn needs_wakeup(&self) -> bool {
        // The thread sets the flag and then reads the tail again.
        fence(SeqCst);
        self.sq_flags() & sq_flags::NEED_WAKEUP != 0
    }

    /// Whether there are completions that only io_uring_enter(2) brings into the CQ.
    pub(crate) fn needs_flush(&self) -> bool {
        self.sq_flags() & (sq_flags::CQ_OVERFLOW | sq_flags::TASKRUN) != 0
    }

    fn sq_flags(&self) -> u32 {
        self.word(self.params.sq_off.flags).load(Relaxed)
    }

    /// CQEs that are ready.
    pub(crate) fn cq_ready(&self) -> u32 {
        let head = self.word(self.params.cq_off.head).load(Relaxed);
        // Pairs with the ring's release: the CQEs before the tail are complete.
        self.word(self.params.cq_off.tail).load(Acquire).wrapping_sub(head)
    }

    /// Takes the oldest CQE.
    pub(crate) fn pop(&mut self) -> Option<cqueue::Entry> {
        if self.cq_ready() == 0 {
            return None;
        }
        let head = self.word(self.params.cq_off.head);
        let position = head.load(Relaxed);
        let index = (position & (self.params.cq_entries - 1)) as usize;
        let slot: *const cqueue::Entry = self.rings.at(self.params.cq_off.cqes as usize + index * size_of::<cqueue::Entry>());
        // SAFETY: a complete CQE, of integers, which stays until the head passes it.
        let entry = unsafe { slot.read() };
        head.store(position.wrapping_add(1), Release);
        Some(entry)
    }

    /// `IORING_SETUP_*`
    pub(crate) fn has_flag(&self, flag: u32) -> bool {
        self.params.flags & flag != 0
    }

    pub(crate) fn params(&self) -> &UringParams {
        &self.params
    }
}
