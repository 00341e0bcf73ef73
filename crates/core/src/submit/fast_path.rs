//! The fast path: an SQE that is likely to complete at once, with no flag but a registered file, or
//! `IOSQE_ASYNC` where that makes no difference.
//!
//! No request is built for what is often one system call. An SQE that is not plain returns
//! [`FastPath::Fallback`] and becomes a request like any other.
//!
//! All of it is inlined into the submission loop for a reason: the first `ret` after a system call
//! can cost a third of the call (kernels that harden returns leave the CPU's return predictor
//! useless: 240 of 780 ns of a 1 KiB pwrite measured on Linux 6.18, AMD EPYC). A batch pays for it
//! once, not once a request.

use super::attempt::{Depth, FastPath};
use super::fast_names;
use crate::file::FileKind;
use crate::ops::table;
use crate::request::Outcome;
use crate::route::hint::AsyncHint;
use crate::route::{Route, SqeFacts, Step, route};
use crate::state::UringGuard;
use crate::write::{self, WriteMode, history::Latency};
use uringlet_abi::register::Iovec;
use uringlet_abi::{Opcode, Sqe, sqe};
use uringlet_sys::clock::ticks;
use uringlet_sys::io::{self, RWF_NOWAIT};
use uringlet_sys::process::is_file_size_limited;
use uringlet_sys::stats::{self, Counter};
use uringlet_sys::{Errno, UserPtr, fd_table, user};

// The opcodes of the fast path, as constants: `route` is evaluated at compile time as far as their
// facts go.
const NOP: SqeFacts = SqeFacts::of(table::routing(Opcode::Nop));
const READ: SqeFacts = SqeFacts::of(table::routing(Opcode::Read));
const WRITE: SqeFacts = SqeFacts::of(table::routing(Opcode::Write));
const SEND: SqeFacts = SqeFacts::of(table::routing(Opcode::Send));

/// `IOSQE_*` that an SQE may have here.
const FLAGS: u8 = sqe::FIXED_FILE | sqe::ASYNC;

/// Tries an SQE.
#[inline(always)]
pub(crate) fn fast_path(guard: &mut UringGuard, sqe: &Sqe, depth: Depth) -> FastPath {
    if sqe.flags & !FLAGS != 0 || (sqe.flags & sqe::ASYNC != 0 && !is_for_submitter(sqe)) {
        return FastPath::Fallback;
    }
    if sqe.flags & sqe::FIXED_FILE != 0 {
        return on_registered_file(guard, sqe, depth);
    }
    try_on(guard, sqe, sqe.fd, depth)
}

/// Apart from [`try_on`], so that a plain number does not pay for the reference.
#[inline(never)]
fn on_registered_file(guard: &mut UringGuard, sqe: &Sqe, depth: Depth) -> FastPath {
    // A reference is held: the slot may be cleared while the ring is unlocked.
    let Some(node) = guard.res.files.get(sqe.fd as u32).cloned() else { return FastPath::Fallback };
    let tried = try_on(guard, sqe, node.fd.number(), depth);
    guard.res.release_file(node);
    tried
}

#[inline(always)]
fn try_on(guard: &mut UringGuard, sqe: &Sqe, fd: i32, depth: Depth) -> FastPath {
    match Opcode::from_u8(sqe.opcode) {
        Some(Opcode::Nop) => nop(sqe),
        Some(Opcode::Write) => write_one(guard, sqe, fd),
        Some(Opcode::Writev) => write_vector(guard, sqe, fd),
        Some(Opcode::Read) => read(sqe, fd),
        Some(Opcode::Readv) => readv(sqe, fd),
        Some(Opcode::Send) => send(sqe, fd),
        Some(Opcode::Statx) => fast_names::statx(guard, sqe, depth),
        Some(Opcode::Unlinkat) => fast_names::unlink(guard, sqe, depth),
        Some(Opcode::Close) => fast_names::close(guard, sqe, depth),
        Some(Opcode::Openat) => fast_names::open(guard, sqe),
        _ => FastPath::Fallback,
    }
}

/// Whether the submitter takes an SQE with `IOSQE_ASYNC`. Of the opcodes here only SEND may wait
/// for other processes, and its SQE tells how many bytes it moves.
#[inline(always)]
fn is_for_submitter(sqe: &Sqe) -> bool {
    let max_transfer = (sqe.opcode == Opcode::Send as u8).then_some(sqe.len as usize);
    is_routed_here(FileKind::UNKNOWN, SqeFacts { is_async: true, hint: AsyncHint::current(), max_transfer, ..SEND })
}

/// Whether `route` sends an SQE whose facts do not include the ring's mode to the fast path.
#[inline(always)]
pub(super) fn is_routed_here(file: FileKind, facts: SqeFacts) -> bool {
    route(file, WriteMode::Adaptive, Step::Sqe(facts)) == Route::FastPath
}

/// NOP without options.
#[inline(always)]
fn nop(sqe: &Sqe) -> FastPath {
    let is_plain = sqe.op_flags | u32::from(sqe.personality) | u32::from(sqe.ioprio) == 0;
    if !is_routed_here(FileKind::UNKNOWN, SqeFacts { is_plain, ..NOP }) {
        return FastPath::Fallback;
    }
    FastPath::Done(Outcome::ok(0))
}

/// Whether an SQE is a plain transfer at a position.
#[inline(always)]
fn is_plain(sqe: &Sqe) -> bool {
    sqe.op_flags | u32::from(sqe.personality) | u32::from(sqe.ioprio) == 0 && sqe.pad2 == 0 && sqe.off as i64 >= 0
}

/// Whether the submitter reads here.
#[inline(always)]
fn may_read(sqe: &Sqe, fd: i32) -> bool {
    is_routed_here(FileKind::cached(fd), SqeFacts { is_plain: is_plain(sqe), ..READ })
}

/// Whether the submitter writes here.
#[inline(always)]
fn may_write(guard: &mut UringGuard, sqe: &Sqe, fd: i32, start: u64, len: u64) -> bool {
    let facts = SqeFacts {
        is_plain: is_plain(sqe),
        is_clean: fd_table::history(fd) == 0,
        may_raise_signal: is_file_size_limited(),
        has_budget: guard.res.throttle.covers(start, len),
        ..WRITE
    };
    route(FileKind::cached(fd), guard.res.mode, Step::Sqe(facts)) == Route::FastPath
}

/// WRITE: one pwrite.
#[inline(always)]
fn write_one(guard: &mut UringGuard, sqe: &Sqe, fd: i32) -> FastPath {
    let start = ticks();
    if !may_write(guard, sqe, fd, start, u64::from(sqe.len)) {
        return FastPath::Fallback;
    }
    let len = sqe.len as usize;
    let unlocked = guard.unlock();
    let res = io::pwrite(fd, UserPtr::at(sqe.addr), len, sqe.off as i64);
    unlocked.relock();
    account(guard, fd, start, &res);
    outcome_of(res, len)
}

/// Charges a write to the budget, and records its latency.
#[inline(always)]
fn account(guard: &mut UringGuard, fd: i32, start: u64, res: &Result<usize, Errno>) {
    let bytes = *res.as_ref().unwrap_or(&0) as u64;
    guard.res.throttle.charge(bytes);
    stats::bump(guard.res.ring_index, Counter::WritesInline);
    if Latency::of(ticks().wrapping_sub(start), bytes) == Latency::Slow {
        write::note_inline_miss(guard.res.ring_index, fd);
    }
}

/// WRITEV with one iovec: one pwritev.
#[inline(always)]
fn write_vector(guard: &mut UringGuard, sqe: &Sqe, fd: i32) -> FastPath {
    let start = ticks();
    // An exhausted budget covers no length.
    if sqe.len != 1 || !may_write(guard, sqe, fd, start, 1) {
        return FastPath::Fallback;
    }
    let iov = UserPtr::at(sqe.addr);
    let unlocked = guard.unlock();
    let res = io::pwritev(fd, iov, 1, sqe.off as i64, 0);
    unlocked.relock();
    // The length is known only now: an excess is charged to the next write.
    account(guard, fd, start, &res);
    match res {
        Ok(n) => outcome_of(Ok(n), user::read_mapped::<Iovec>(iov).len as usize),
        Err(errno) => outcome_of(Err(errno), 0),
    }
}

#[inline(always)]
fn outcome_of(res: Result<usize, Errno>, wanted: usize) -> FastPath {
    match res {
        Ok(n) if n >= wanted => FastPath::Done(Outcome::ok(n as i32)),
        Ok(n) => FastPath::Short(n),
        // The number has another file by now; or `prep` knows whether the address ends the
        // submission.
        Err(Errno::ESPIPE | Errno::EFAULT) => FastPath::Fallback,
        Err(errno) => FastPath::Done(Outcome::err(errno)),
    }
}

/// SEND: sends what the socket takes without waiting. The kernel reports a socket's error once, so
/// it is not left to a request.
#[inline(always)]
fn send(sqe: &Sqe, fd: i32) -> FastPath {
    let is_plain = (sqe.op_flags & !io::MSG_NOSIGNAL) | u32::from(sqe.personality) | u32::from(sqe.ioprio) | sqe.splice_fd_in as u32 == 0
        && sqe.addr2() == 0
        && sqe.len as i32 > 0;
    if !is_routed_here(FileKind::UNKNOWN, SqeFacts { is_plain, ..SEND }) {
        return FastPath::Fallback;
    }
    let flags = io::MSG_DONTWAIT | io::MSG_NOSIGNAL;
    match io::sendto(fd, UserPtr::at(sqe.addr), sqe.len as usize, flags, UserPtr::NULL, 0) {
        Err(Errno::EAGAIN | Errno::ENOTSOCK | Errno::EBADF | Errno::EFAULT) => FastPath::Fallback,
        other => FastPath::Done(other.into()),
    }
}

/// READ: reads from the page cache if it has all bytes.
#[inline(always)]
fn read(sqe: &Sqe, fd: i32) -> FastPath {
    if !may_read(sqe, fd) {
        return FastPath::Fallback;
    }
    let iovec = [Iovec { base: sqe.addr, len: u64::from(sqe.len) }];
    cached(sqe, fd, io::ptr_of_slice(&iovec), sqe.len as usize)
}

/// READV with one iovec.
#[inline(always)]
fn readv(sqe: &Sqe, fd: i32) -> FastPath {
    if sqe.len != 1 || !may_read(sqe, fd) {
        return FastPath::Fallback;
    }
    cached(sqe, fd, UserPtr::at(sqe.addr), usize::MAX)
}

/// Reads what is cached; a request reads anything short of everything again.
#[inline(always)]
fn cached(sqe: &Sqe, fd: i32, iov: UserPtr, wanted: usize) -> FastPath {
    match io::preadv2(fd, iov, 1, sqe.off as i64, 0, RWF_NOWAIT) {
        Ok(n) if n == wanted || (wanted == usize::MAX && n as u64 == user::read_mapped::<Iovec>(iov).len) => {
            FastPath::Done(Outcome::ok(n as i32))
        }
        Err(Errno::EAGAIN) => FastPath::WouldBlock,
        _ => FastPath::Fallback,
    }
}
