//! `struct io_uring`, 216 bytes, field for field as in liburing's header: code that is inlined from
//! there into the program reads and writes it directly.
//!
//! Fields are [`Cell`]s because no thread has the structure to itself: one may submit while another
//! reaps, each with its own half. Two threads on the same half are an error of the program, here as
//! in liburing.

use core::cell::Cell;
use core::mem::MaybeUninit;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use uringlet_abi::{Cqe, Sqe, UringParams, setup};

use crate::c_types::Void;

/// Where a function stores the CQE it found.
pub type CqeOut = MaybeUninit<*mut Cqe>;

/// The address of a word in the ring's shared memory.
///
/// Only `RingWord::at` makes one, from a mapping that stays until `io_uring_queue_exit`; using a
/// ring after that is outside liburing's contract.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct RingWord(*const AtomicU32);

impl RingWord {
    /// The word `offset` bytes into the mapping at `base`.
    ///
    /// # Safety
    /// The word lies in a mapping that outlives every use of the result.
    pub(crate) unsafe fn at(base: *mut Void, offset: u32) -> Self {
        Self(base.cast::<u8>().wrapping_add(offset as usize).cast())
    }

    fn get(&self) -> &AtomicU32 {
        // SAFETY: `at` promised that the word is mapped; words of the ring are only accessed
        // atomically, by this library and by the engine.
        unsafe { &*self.0 }
    }

    pub(crate) fn load(self) -> u32 {
        self.get().load(Relaxed)
    }

    pub(crate) fn load_acquire(self) -> u32 {
        self.get().load(Acquire)
    }

    pub(crate) fn store_release(self, value: u32) {
        self.get().store(value, Release);
    }
}

/// `struct io_uring_sq`
#[allow(missing_docs)]
#[derive(Debug)]
#[repr(C)]
pub struct IoUringSq {
    pub khead: Cell<RingWord>,
    pub ktail: Cell<RingWord>,
    pub kring_mask: Cell<RingWord>,
    pub kring_entries: Cell<RingWord>,
    pub kflags: Cell<RingWord>,
    pub kdropped: Cell<RingWord>,
    pub array: Cell<*mut u32>,
    pub sqes: Cell<*mut Sqe>,
    pub sqe_head: Cell<u32>,
    pub sqe_tail: Cell<u32>,
    pub ring_sz: Cell<usize>,
    pub ring_ptr: Cell<*mut Void>,
    pub ring_mask: Cell<u32>,
    pub ring_entries: Cell<u32>,
    pub sqes_sz: Cell<u32>,
    pub pad: u32,
}

/// `struct io_uring_cq`
#[allow(missing_docs)]
#[derive(Debug)]
#[repr(C)]
pub struct IoUringCq {
    pub khead: Cell<RingWord>,
    pub ktail: Cell<RingWord>,
    pub kring_mask: Cell<RingWord>,
    pub kring_entries: Cell<RingWord>,
    pub kflags: Cell<RingWord>,
    pub koverflow: Cell<RingWord>,
    pub cqes: Cell<*mut Cqe>,
    pub ring_sz: Cell<usize>,
    pub ring_ptr: Cell<*mut Void>,
    pub ring_mask: Cell<u32>,
    pub ring_entries: Cell<u32>,
    pub pad: [u32; 2],
}

/// `struct io_uring`
#[allow(missing_docs)]
#[derive(Debug)]
#[repr(C)]
pub struct IoUring {
    pub sq: IoUringSq,
    pub cq: IoUringCq,
    /// `IORING_SETUP_*`
    pub flags: Cell<u32>,
    pub ring_fd: Cell<i32>,
    /// `IORING_FEAT_*`
    pub features: Cell<u32>,
    /// What io_uring_enter takes: the fd, or the index of the registered ring.
    pub enter_ring_fd: Cell<i32>,
    /// [`int_flags`]
    pub int_flags: Cell<u8>,
    pub pad: [u8; 3],
    pub pad2: u32,
}

/// Bits of [`IoUring::int_flags`]. Private: no header of liburing reads them.
pub mod int_flags {
    use uringlet_abi::enter;

    /// Register calls use the registered ring, too.
    pub const REG_REG_RING: u8 = 1 << 0;
    /// The ring's memory is the program's: leave it alone at exit.
    pub const APP_MEM: u8 = 1 << 1;
    /// Nothing completes without an enter (IOPOLL without SQPOLL).
    pub const CQ_ENTER: u8 = 1 << 2;
    /// [`IoUring::enter_ring_fd`](super::IoUring::enter_ring_fd) is an index. The bit is the enter
    /// flag's own.
    pub const REG_RING: u8 = enter::REGISTERED_RING as u8;
    /// Waits do not count as iowait. The bit is the enter flag's own.
    pub const NO_IOWAIT: u8 = enter::NO_IOWAIT as u8;
}

impl IoUring {
    /// A zeroed ring in memory that the caller's C code may have left uninitialized.
    pub(crate) fn zeroed(uninit: &mut MaybeUninit<Self>) -> &Self {
        *uninit = MaybeUninit::zeroed();
        // SAFETY: integers and raw pointers, for all of which zero is a value.
        unsafe { uninit.assume_init_ref() }
    }

    pub(crate) fn has_flag(&self, flag: u32) -> bool {
        self.flags.get() & flag != 0
    }

    pub(crate) fn has_feature(&self, feature: u32) -> bool {
        self.features.get() & feature != 0
    }

    pub(crate) fn has_int_flag(&self, flag: u8) -> bool {
        self.int_flags.get() & flag != 0
    }

    pub(crate) fn set_int_flags(&self, flags: u8) {
        self.int_flags.set(self.int_flags.get() | flags);
    }

    pub(crate) fn clear_int_flags(&self, flags: u8) {
        self.int_flags.set(self.int_flags.get() & !flags);
    }

    /// The flags that every enter of this ring carries.
    pub(crate) fn enter_flags(&self) -> u32 {
        u32::from(self.int_flags.get() & (int_flags::REG_RING | int_flags::NO_IOWAIT))
    }

    /// The CQE at this position of the CQ. With CQE32 each takes two slots.
    pub(crate) fn cqe_at(&self, position: u32) -> *mut Cqe {
        let index = ((position & self.cq.ring_mask.get()) as usize) << u32::from(self.has_flag(setup::CQE32));
        self.cq.cqes.get().wrapping_add(index)
    }

    /// Points the ring's fields into the mapping at `rings` (both queues) and `sqes`.
    ///
    /// # Safety
    /// Both mappings are as `params` of a finished setup describes and stay until the ring is
    /// exited.
    pub(crate) unsafe fn point_into(&self, rings: *mut Void, sqes: *mut Sqe, params: &UringParams) {
        let (sq_off, cq_off) = (&params.sq_off, &params.cq_off);
        // SAFETY: setup made these offsets for this mapping.
        let word = |offset| unsafe { RingWord::at(rings, offset) };
        self.sq.khead.set(word(sq_off.head));
        self.sq.ktail.set(word(sq_off.tail));
        self.sq.kring_mask.set(word(sq_off.ring_mask));
        self.sq.kring_entries.set(word(sq_off.ring_entries));
        self.sq.kflags.set(word(sq_off.flags));
        self.sq.kdropped.set(word(sq_off.dropped));
        self.sq.ring_mask.set(word(sq_off.ring_mask).load());
        self.sq.ring_entries.set(word(sq_off.ring_entries).load());
        self.sq.ring_ptr.set(rings);
        self.sq.sqes.set(sqes);
        self.cq.khead.set(word(cq_off.head));
        self.cq.ktail.set(word(cq_off.tail));
        self.cq.kring_mask.set(word(cq_off.ring_mask));
        self.cq.kring_entries.set(word(cq_off.ring_entries));
        self.cq.kflags.set(word(cq_off.flags));
        self.cq.koverflow.set(word(cq_off.overflow));
        self.cq.ring_mask.set(word(cq_off.ring_mask).load());
        self.cq.ring_entries.set(word(cq_off.ring_entries).load());
        self.cq.ring_ptr.set(rings);
        self.cq.cqes.set(rings.cast::<u8>().wrapping_add(cq_off.cqes as usize).cast());
        if params.flags & setup::NO_SQARRAY == 0 {
            self.fill_array(rings, sq_off.array);
        }
    }

    /// Entry i of the SQ array permanently refers to SQE i: submitting then never touches the
    /// array.
    fn fill_array(&self, rings: *mut Void, array: u32) {
        self.sq.array.set(rings.cast::<u8>().wrapping_add(array as usize).cast());
        for slot in 0..self.sq.ring_entries.get() {
            // SAFETY: the array has one word an entry, inside the mapping of `point_into`'s caller.
            unsafe { RingWord::at(rings, array + 4 * slot) }.store_release(slot);
        }
    }
}

// The sizes of liburing's header: a mistake here shows before the test that runs a C compiler.
const _: () = {
    assert!(size_of::<IoUringSq>() == 104);
    assert!(size_of::<IoUringCq>() == 88);
    assert!(size_of::<IoUring>() == 216);
};
