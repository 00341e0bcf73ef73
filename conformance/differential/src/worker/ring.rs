//! A ring on the raw ABI, independent of the product and of any library.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use uringlet_abi::{Cqe, GeteventsArg, Sqe, Timespec, UringParams, cqe, enter, layout, setup, sq_flags};

#[derive(Debug)]
pub(super) struct RawRing {
    pub(super) fd: i32,
    params: UringParams,
    rings: *mut u8,
    sqes: *mut u8,
    sqe_size: usize,
    cqe_size: usize,
    /// The SQ's tail, counting pushed SQEs that are not consumed yet.
    tail: u32,
}

/// A CQE, and what a big one has more.
#[derive(Clone, Copy, Debug)]
pub(super) struct PoppedCqe {
    pub(super) cqe: Cqe,
    pub(super) extra: [u64; 2],
}

const SYS_IO_URING_SETUP: libc::c_long = 425;
const SYS_IO_URING_ENTER: libc::c_long = 426;
const SYS_IO_URING_REGISTER: libc::c_long = 427;

/// A call's return value, or -errno.
fn answer(returned: libc::c_long) -> i64 {
    if returned < 0 { -i64::from(io::Error::last_os_error().raw_os_error().unwrap_or(0)) } else { returned }
}

pub(super) fn setup_ring(entries: u32, params: &mut UringParams) -> i64 {
    // SAFETY: the kernel checks the address and writes only these 120 bytes.
    answer(unsafe { libc::syscall(SYS_IO_URING_SETUP, entries, std::ptr::from_mut(params)) })
}

fn map(fd: i32, len: usize, offset: u64) -> Option<*mut u8> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, nothing is replaced.
    let p = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED | libc::MAP_POPULATE, fd, offset as i64) };
    (p != libc::MAP_FAILED).then_some(p.cast())
}

impl RawRing {
    /// A new ring, or the error of io_uring_setup(2).
    pub(super) fn new(entries: u32, cq_entries: u32, flags: u32) -> Result<Self, i64> {
        let mut params = UringParams { flags, cq_entries, ..UringParams::default() };
        let fd = setup_ring(entries, &mut params);
        if fd < 0 {
            return Err(fd);
        }
        let fd = fd as i32;
        let cqe_size = if flags & setup::CQE32 != 0 { 32 } else { 16 };
        let sqe_size = if flags & setup::SQE128 != 0 { 128 } else { 64 };
        let cq_len = params.cq_off.cqes as usize + params.cq_entries as usize * cqe_size;
        let array_len = if flags & setup::NO_SQARRAY != 0 { 0 } else { params.sq_off.array as usize + params.sq_entries as usize * 4 };
        let rings = map(fd, cq_len.max(array_len), layout::OFF_SQ_RING).ok_or(-1)?;
        let sqes = map(fd, params.sq_entries as usize * sqe_size, layout::OFF_SQES).ok_or(-1)?;
        let ring = Self { fd, params, rings, sqes, sqe_size, cqe_size, tail: 0 };
        if flags & setup::NO_SQARRAY == 0 {
            for i in 0..params.sq_entries {
                ring.word(params.sq_off.array + 4 * i).store(i, Ordering::Relaxed);
            }
        }
        Ok(ring)
    }

    pub(super) fn entries(&self) -> (u32, u32) {
        (self.params.sq_entries, self.params.cq_entries)
    }

    fn word(&self, offset: u32) -> &AtomicU32 {
        // SAFETY: inside the mapping by the offsets that came with it; aligned; shared with the
        // other side as atomics only.
        unsafe { AtomicU32::from_ptr(self.rings.add(offset as usize).cast()) }
    }

    pub(super) fn is_polled_by_thread(&self) -> bool {
        self.params.flags & setup::SQPOLL != 0
    }

    /// Number of pushed SQEs that are not consumed.
    pub(super) fn pending(&self) -> u32 {
        self.tail.wrapping_sub(self.word(self.params.sq_off.head).load(Ordering::Acquire))
    }

    /// The SQ must have room.
    pub(super) fn push(&mut self, sqe: &Sqe) {
        assert!(self.pending() < self.params.sq_entries, "the scenario's batches fit the ring");
        let index = self.tail & (self.params.sq_entries - 1);
        let words = sqe.to_words();
        // SAFETY: an entry inside the mapping; the other side reads it only after the tail has
        // moved.
        unsafe {
            let entry = self.sqes.add(index as usize * self.sqe_size);
            std::ptr::write_bytes(entry, 0, self.sqe_size);
            std::ptr::copy_nonoverlapping(words.as_ptr().cast::<u8>(), entry, 64);
        }
        self.tail = self.tail.wrapping_add(1);
    }

    /// Publishes and submits the pushed SQEs. Returns the call's result.
    pub(super) fn submit(&self) -> i64 {
        self.word(self.params.sq_off.tail).store(self.tail, Ordering::SeqCst);
        let mut flags = 0;
        if self.is_polled_by_thread() && self.word(self.params.sq_off.flags).load(Ordering::SeqCst) & sq_flags::NEED_WAKEUP != 0 {
            flags |= enter::SQ_WAKEUP;
        }
        self.enter(self.pending(), 0, flags, 0, 0)
    }

    /// With SQPOLL: waits until the thread has consumed everything.
    pub(super) fn wait_until_taken(&self) {
        for _ in 0..5000 {
            if !self.is_polled_by_thread() || self.pending() == 0 {
                return;
            }
            if self.word(self.params.sq_off.flags).load(Ordering::SeqCst) & sq_flags::NEED_WAKEUP != 0 {
                self.enter(0, 0, enter::SQ_WAKEUP, 0, 0);
            }
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
    }

    pub(super) fn enter(&self, to_submit: u32, min_complete: u32, flags: u32, arg: u64, arg_len: usize) -> i64 {
        Self::enter_by(self.fd, to_submit, [min_complete, flags], arg, arg_len)
    }

    /// io_uring_enter(2) with an index of a registered ring.
    pub(super) fn enter_registered(index: i32, min_complete: u32, flags: u32, arg: u64, arg_len: usize) -> i64 {
        Self::enter_by(index, 0, [min_complete, flags], arg, arg_len)
    }

    fn enter_by(fd: i32, to_submit: u32, [min_complete, flags]: [u32; 2], arg: u64, arg_len: usize) -> i64 {
        // SAFETY: the kernel checks what it is given.
        answer(unsafe { libc::syscall(SYS_IO_URING_ENTER, fd, to_submit, min_complete, flags, arg, arg_len) })
    }

    /// io_uring_register(2) without a ring.
    pub(super) fn register_without_ring(opcode: u32, arg: u64, nr_args: u32) -> i64 {
        Self::register_by(-1, opcode, arg, nr_args)
    }

    fn register_by(fd: i32, opcode: u32, arg: u64, nr_args: u32) -> i64 {
        // SAFETY: the kernel checks what it is given; registered memory is the arena, which stays.
        answer(unsafe { libc::syscall(SYS_IO_URING_REGISTER, fd, opcode, arg, nr_args) })
    }

    pub(super) fn register(&self, opcode: u32, arg: u64, nr_args: u32) -> i64 {
        Self::register_by(self.fd, opcode, arg, nr_args)
    }

    /// Waits in the call for one CQE, at most this long.
    pub(super) fn wait(&self, timeout_ms: u64) -> i64 {
        let ts = Timespec { tv_sec: (timeout_ms / 1000) as i64, tv_nsec: (timeout_ms % 1000 * 1_000_000) as i64 };
        let arg = GeteventsArg { ts: std::ptr::from_ref(&ts) as u64, ..GeteventsArg::default() };
        self.enter(0, 1, enter::GETEVENTS | enter::EXT_ARG, std::ptr::from_ref(&arg) as u64, size_of::<GeteventsArg>())
    }

    /// The oldest CQE, without fillers.
    pub(super) fn pop(&self) -> Option<PoppedCqe> {
        loop {
            let popped = self.pop_slot()?;
            if popped.cqe.flags & cqe::SKIP == 0 {
                return Some(popped);
            }
        }
    }

    fn pop_slot(&self) -> Option<PoppedCqe> {
        let head = self.word(self.params.cq_off.head);
        let at = head.load(Ordering::Relaxed);
        if at == self.word(self.params.cq_off.tail).load(Ordering::Acquire) {
            return None;
        }
        let index = (at & (self.params.cq_entries - 1)) as usize;
        // SAFETY: an entry inside the mapping, published by the tail. A big one never begins in the
        // last slot.
        let (cqe, is_big, extra) = unsafe {
            let slot = self.rings.add(self.params.cq_off.cqes as usize + index * self.cqe_size).cast::<Cqe>();
            let cqe = slot.read();
            // A message brings any flags to a ring whose CQEs are all small.
            let is_mixed = self.params.flags & setup::CQE_MIXED != 0;
            let is_big = self.cqe_size == 32 || is_mixed && cqe.flags & cqe::BIG != 0;
            (cqe, is_big, if is_big { slot.add(1).cast::<[u64; 2]>().read() } else { [0; 2] })
        };
        let slots = if is_big && self.cqe_size == 16 { 2 } else { 1 };
        head.store(at.wrapping_add(slots), Ordering::Release);
        Some(PoppedCqe { cqe, extra })
    }

    pub(super) fn has_overflow(&self) -> bool {
        self.word(self.params.sq_off.flags).load(Ordering::Acquire) & sq_flags::CQ_OVERFLOW != 0
    }
}
