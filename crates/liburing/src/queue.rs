//! Submit, wait, peek: the functions that call io_uring_enter(2).

use core::sync::atomic::{Ordering::SeqCst, fence};

use uringlet_abi::{Cqe, GeteventsArg, Sqe, Timespec, enter, feat, setup, sq_flags};
use uringlet_sys::UserPtr;

use crate::c_types::{SigSet, err};
use crate::readiness::settle_readiness;
use crate::ring::{CqeOut, IoUring, int_flags};
use crate::syscall::{self, user};

/// Bytes of the kernel's `sigset_t`.
const SIGSET_BYTES: u32 = 8;
/// Bytes of one `struct io_uring_reg_wait` in the region registered for them.
const REG_WAIT_BYTES: usize = 64;

/// Whether a submission of `to_submit` SQEs has to enter. With SQPOLL only a sleeping SQ thread
/// must be woken; one that is awake sees the SQEs.
fn sq_needs_enter(ring: &IoUring, to_submit: u32, flags: &mut u32) -> bool {
    if to_submit == 0 {
        return false;
    }
    if !ring.has_flag(setup::SQPOLL) {
        return true;
    }
    // The tail must be visible before NEED_WAKEUP is read; the SQ thread sets the flag and then
    // reads the tail again.
    fence(SeqCst);
    if ring.sq.kflags.get().load() & sq_flags::NEED_WAKEUP == 0 {
        return false;
    }
    *flags |= enter::SQ_WAKEUP;
    true
}

/// Whether there are completions that only an enter brings into the CQ.
fn cq_needs_flush(ring: &IoUring) -> bool {
    ring.sq.kflags.get().load() & (sq_flags::CQ_OVERFLOW | sq_flags::TASKRUN) != 0
}

fn cq_needs_enter(ring: &IoUring) -> bool {
    ring.has_int_flag(int_flags::CQ_ENTER) || cq_needs_flush(ring)
}

/// Publishes the SQEs filled so far. Returns how many the engine has not consumed.
fn flush_sq(ring: &IoUring) -> u32 {
    let tail = ring.sq.sqe_tail.get();
    if ring.sq.sqe_head.get() != tail {
        ring.sq.sqe_head.set(tail);
        // Pairs with the engine's acquire of the tail: it sees complete SQEs.
        ring.sq.ktail.get().store_release(tail);
    }
    tail.wrapping_sub(ring.sq.khead.get().load())
}

/// CQEs ready to be read.
fn cq_ready(ring: &IoUring) -> u32 {
    // Pairs with the engine's release of the tail: the CQEs before it are complete.
    ring.cq.ktail.get().load_acquire().wrapping_sub(ring.cq.khead.get().load())
}

/// The oldest CQE, null if there is none, and how many are ready.
fn peek(ring: &IoUring) -> (*mut Cqe, u32) {
    match cq_ready(ring) {
        0 => (core::ptr::null_mut(), 0),
        ready => (ring.cqe_at(ring.cq.khead.get().load()), ready),
    }
}

/// One call of io_uring_enter(2), or several: what to submit and what to wait for.
struct SubmitWaitArgs {
    submit: u32,
    wait_nr: u32,
    /// Flags of enter, beyond GETEVENTS.
    flags: u32,
    arg: UserPtr,
    arg_len: usize,
    /// The wait has a time-out: entering twice would wait twice as long.
    is_timed: bool,
}

impl SubmitWaitArgs {
    fn with_mask(submit: u32, wait_nr: u32, mask: *mut SigSet) -> Self {
        Self { submit, wait_nr, flags: 0, arg: user(mask), arg_len: SIGSET_BYTES as usize, is_timed: false }
    }

    fn with_arg(submit: u32, wait_nr: u32, arg: &GeteventsArg) -> Self {
        let is_timed = arg.ts != 0;
        Self { submit, wait_nr, flags: enter::EXT_ARG, arg: user(arg), arg_len: size_of::<GeteventsArg>(), is_timed }
    }

    /// The flags to enter with, if an enter is needed.
    fn flags_now(&self, ring: &IoUring, ready: u32) -> Option<u32> {
        let mut flags = ring.enter_flags();
        let is_peek = ready == 0 && self.wait_nr == 0 && self.submit == 0;
        let gets = self.wait_nr > ready || (is_peek && cq_needs_enter(ring));
        if gets {
            flags |= enter::GETEVENTS | self.flags;
        }
        let submits = sq_needs_enter(ring, self.submit, &mut flags);
        (gets || submits).then_some(flags)
    }

    /// Enters until all is submitted and the CQEs are there. Returns the CQE found and the result
    /// of the first enter, the number of SQEs submitted.
    fn run(mut self, ring: &IoUring) -> (*mut Cqe, i32) {
        let mut first: Option<i32> = None;
        loop {
            let (cqe, ready) = peek(ring);
            let submitted = first.unwrap_or(0);
            let Some(flags) = self.flags_now(ring, ready) else {
                let has_nothing = cqe.is_null() && submitted == 0;
                return (cqe, if has_nothing { err::EAGAIN } else { submitted });
            };
            if first.is_some() && (self.is_timed || (self.wait_nr == 0 && self.submit == 0)) {
                let has_nothing = cqe.is_null() && submitted == 0;
                let errno = if self.is_timed { err::ETIME } else { err::EAGAIN };
                return (cqe, if has_nothing { errno } else { submitted });
            }
            let entered = syscall::enter(ring.enter_ring_fd.get(), self.submit, self.wait_nr, flags, self.arg, self.arg_len);
            if entered < 0 {
                return (cqe, if submitted == 0 { entered } else { submitted });
            }
            self.submit -= entered.cast_unsigned();
            if !cqe.is_null() {
                return (cqe, submitted);
            }
            first.get_or_insert(entered);
        }
    }
}

fn get_cqe(ring: &IoUring, cqe_ptr: &mut CqeOut, wait: SubmitWaitArgs) -> i32 {
    let (cqe, result) = wait.run(ring);
    cqe_ptr.write(cqe);
    if cqe.is_null() {
        settle_readiness();
    }
    result
}

fn getevents_arg(ts: *mut Timespec, min_wait_usec: u32, mask: *mut SigSet) -> GeteventsArg {
    GeteventsArg { sigmask: user(mask).addr() as u64, sigmask_sz: SIGSET_BYTES, min_wait_usec, ts: user(ts).addr() as u64 }
}

fn submit_and_wait_timed(
    ring: &IoUring,
    cqe_ptr: &mut CqeOut,
    wait_nr: u32,
    ts: *mut Timespec,
    min_wait_usec: u32,
    mask: *mut SigSet,
) -> i32 {
    let submit = flush_sq(ring);
    if ts.is_null() {
        return get_cqe(ring, cqe_ptr, SubmitWaitArgs::with_mask(submit, wait_nr, mask));
    }
    let arg = getevents_arg(ts, min_wait_usec, mask);
    get_cqe(ring, cqe_ptr, SubmitWaitArgs::with_arg(submit, wait_nr, &arg))
}

/// Publishes and submits; `getevents` is that flag of enter, or 0.
fn submit(ring: &IoUring, wait_nr: u32, getevents: u32) -> i32 {
    let to_submit = flush_sq(ring);
    let mut flags = ring.enter_flags() | getevents;
    if wait_nr != 0 || cq_needs_enter(ring) {
        flags |= enter::GETEVENTS;
    }
    let submits = sq_needs_enter(ring, to_submit, &mut flags);
    let result = if submits || flags & enter::GETEVENTS != 0 {
        syscall::enter(ring.enter_ring_fd.get(), to_submit, wait_nr, flags, UserPtr::NULL, SIGSET_BYTES as usize)
    } else {
        to_submit.cast_signed()
    };
    if cq_ready(ring) == 0 {
        settle_readiness();
    }
    result
}

/// Copies the addresses of ready CQEs to `cqes`, at most `count`.
fn peek_batch(ring: &IoUring, cqes: *mut *mut Cqe, count: u32) -> u32 {
    let head = ring.cq.khead.get().load();
    let found = cq_ready(ring).min(count);
    for i in 0..found {
        // SAFETY: the caller's array has room for `count` addresses.
        unsafe { cqes.add(i as usize).write(ring.cqe_at(head.wrapping_add(i))) };
    }
    found
}

/// Submits `submit` published SQEs and waits for `wait_nr` CQEs; liburing.h's inline wait and peek
/// call it.
#[unsafe(no_mangle)]
pub extern "C" fn __io_uring_get_cqe(ring: &IoUring, cqe_ptr: &mut CqeOut, submit: u32, wait_nr: u32, sigmask: *mut SigSet) -> i32 {
    get_cqe(ring, cqe_ptr, SubmitWaitArgs::with_mask(submit, wait_nr, sigmask))
}

/// Waits for `wait_nr` CQEs, at most for the time `ts`.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_wait_cqes(ring: &IoUring, cqe_ptr: &mut CqeOut, wait_nr: u32, ts: *mut Timespec, sigmask: *mut SigSet) -> i32 {
    if ts.is_null() {
        return get_cqe(ring, cqe_ptr, SubmitWaitArgs::with_mask(0, wait_nr, sigmask));
    }
    get_cqe(ring, cqe_ptr, SubmitWaitArgs::with_arg(0, wait_nr, &getevents_arg(ts, 0, sigmask)))
}

/// As [`io_uring_wait_cqes`], but after `min_wait_usec` any CQE is enough.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_wait_cqes_min_timeout(
    ring: &IoUring,
    cqe_ptr: &mut CqeOut,
    wait_nr: u32,
    ts: *mut Timespec,
    min_wait_usec: u32,
    sigmask: *mut SigSet,
) -> i32 {
    let min_wait_usec = if ring.has_feature(feat::MIN_TIMEOUT) { min_wait_usec } else { 0 };
    get_cqe(ring, cqe_ptr, SubmitWaitArgs::with_arg(0, wait_nr, &getevents_arg(ts, min_wait_usec, sigmask)))
}

/// Waits for one CQE, at most `ts` long.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_wait_cqe_timeout(ring: &IoUring, cqe_ptr: &mut CqeOut, ts: *mut Timespec) -> i32 {
    io_uring_wait_cqes(ring, cqe_ptr, 1, ts, core::ptr::null_mut())
}

/// Submits; returns the number of SQEs consumed, or -errno.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_submit(ring: &IoUring) -> i32 {
    submit(ring, 0, 0)
}

/// Submits, then waits for `wait_nr` CQEs.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_submit_and_wait(ring: &IoUring, wait_nr: u32) -> i32 {
    submit(ring, wait_nr, 0)
}

/// Submits and fetches all completions.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_submit_and_get_events(ring: &IoUring) -> i32 {
    submit(ring, 0, enter::GETEVENTS)
}

/// Submits, then waits for `wait_nr` CQEs, at most for the time `ts`.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_submit_and_wait_timeout(
    ring: &IoUring,
    cqe_ptr: &mut CqeOut,
    wait_nr: u32,
    ts: *mut Timespec,
    sigmask: *mut SigSet,
) -> i32 {
    submit_and_wait_timed(ring, cqe_ptr, wait_nr, ts, 0, sigmask)
}

/// As [`io_uring_submit_and_wait_timeout`], but after `min_wait` microseconds any CQE is enough.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_submit_and_wait_min_timeout(
    ring: &IoUring,
    cqe_ptr: &mut CqeOut,
    wait_nr: u32,
    ts: *mut Timespec,
    min_wait: u32,
    sigmask: *mut SigSet,
) -> i32 {
    if !ring.has_feature(feat::MIN_TIMEOUT) {
        return err::EINVAL;
    }
    submit_and_wait_timed(ring, cqe_ptr, wait_nr, ts, min_wait, sigmask)
}

/// Submits and waits with the parameters of entry `reg_index` in the registered wait region.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_submit_and_wait_reg(ring: &IoUring, cqe_ptr: &mut CqeOut, wait_nr: u32, reg_index: i32) -> i32 {
    let arg = UserPtr::new((reg_index as usize).wrapping_mul(REG_WAIT_BYTES));
    let flags = enter::EXT_ARG | enter::EXT_ARG_REG;
    get_cqe(ring, cqe_ptr, SubmitWaitArgs { submit: flush_sq(ring), wait_nr, flags, arg, arg_len: REG_WAIT_BYTES, is_timed: true })
}

/// Fetches all completions.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_get_events(ring: &IoUring) -> i32 {
    let flags = enter::GETEVENTS | ring.enter_flags();
    syscall::enter(ring.enter_ring_fd.get(), 0, 0, flags, UserPtr::NULL, SIGSET_BYTES as usize)
}

/// Fills `cqes` with up to `count` ready CQEs; returns their number.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_peek_batch_cqe(ring: &IoUring, cqes: *mut *mut Cqe, count: u32) -> u32 {
    if cq_ready(ring) == 0 && cq_needs_flush(ring) {
        io_uring_get_events(ring);
    }
    let found = peek_batch(ring, cqes, count);
    if found == 0 {
        settle_readiness();
    }
    found
}

/// A vacant SQE, or null when the SQ is full. Inlined since liburing 2.2; programs built before
/// call it.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_get_sqe(ring: &IoUring) -> *mut Sqe {
    let sq = &ring.sq;
    let tail = sq.sqe_tail.get();
    // Pairs with the engine's release of the head: it has copied the SQE that is overwritten now.
    if tail.wrapping_sub(sq.khead.get().load_acquire()) >= sq.ring_entries.get() {
        return core::ptr::null_mut();
    }
    sq.sqe_tail.set(tail.wrapping_add(1));
    let index = ((tail & sq.ring_mask.get()) as usize) << u32::from(ring.has_flag(setup::SQE128));
    sq.sqes.get().wrapping_add(index)
}

/// Waits until the SQ thread has made room in the SQ. liburing.h's io_uring_sqring_wait calls it.
#[unsafe(no_mangle)]
pub extern "C" fn __io_uring_sqring_wait(ring: &IoUring) -> i32 {
    let flags = enter::SQ_WAIT | ring.enter_flags();
    syscall::enter(ring.enter_ring_fd.get(), 0, 0, flags, UserPtr::NULL, SIGSET_BYTES as usize)
}
