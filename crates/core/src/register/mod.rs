//! io_uring_register(2): one table of operations, one file a group.

mod bpf_filter;
mod clone_buffers;
mod eventfd;
mod files;
mod napi;
mod policy;
pub(crate) mod query;
mod resize;
mod ring_fds;
pub(crate) mod setup;
mod wait_args;
mod workers;
mod zcrx;

use crate::driver::leave::release_ring;
use crate::ops::cancel::CancelOp;
use crate::ops::{OPCODES, PrepCx, msg_ring, timeout};
use crate::state::{EventfdCounts, LockOwner, RINGS, Ring, UringGuard, registered_ring};
use crate::submit::{Depth, cancel_matching, run_ready, send_msg_ring};
use alloc::vec;
use uringlet_abi::register::{self as reg, BufReg, BufStatus, SyncCancelReg};
use uringlet_abi::{Opcode, Sqe, setup as setup_flags};
use uringlet_sys::process::monotonic_ns;
use uringlet_sys::{Errno, UserPtr, process, reserve, user};

/// Runs one operation.
///
/// # Errors
/// Those of io_uring_register(2).
pub(crate) fn register(ring: &'static Ring, opcode: u32, arg: UserPtr, n: u32) -> Result<usize, Errno> {
    let mut guard = ring.lock(LockOwner::Submitter).ok_or(Errno::EBADF)?;
    policy::check(&guard, opcode)?;
    if matches!(opcode, reg::RING_FDS | reg::UNREGISTER_RING_FDS) {
        // These look up other rings, so they must not run under this one's lock.
        drop(guard);
        return if opcode == reg::RING_FDS { ring_fds::register(arg, n) } else { ring_fds::unregister(arg, n) };
    }
    if guard.issuer.is_some_and(|issuer| issuer != process::thread_key()) {
        return Err(Errno::EEXIST);
    }
    let result = if needs_memory(opcode) { reserve::ensure() } else { Ok(()) }.and_then(|()| run(&mut guard, opcode, arg, n));
    release_ring(guard);
    result
}

/// Runs an operation that needs no ring.
///
/// # Errors
/// Those of io_uring_register(2); `EINVAL` the operation needs a ring.
pub(crate) fn without_ring(opcode: u32, arg: UserPtr, n: u32) -> Result<usize, Errno> {
    if needs_memory(opcode) {
        reserve::ensure()?;
    }
    match opcode {
        reg::QUERY => query::query(arg, n),
        reg::SEND_MSG_RING => one(arg, n).and_then(|()| send_message(arg)),
        reg::RESTRICTIONS => policy::restrict_task(arg, n),
        reg::BPF_FILTER => policy::filter_task(arg, n),
        _ => Err(Errno::EINVAL),
    }
}

/// `IORING_REGISTER_SEND_MSG_RING`: a CQE for a ring, from a thread that needs none of its own.
fn send_message(arg: UserPtr) -> Result<usize, Errno> {
    let sqe: Sqe = user::read(arg)?;
    if sqe.flags != 0 || sqe.opcode != Opcode::MsgRing as u8 || sqe.personality != 0 {
        return Err(Errno::EINVAL);
    }
    if process::is_foreign() {
        return Err(Errno::EPERM);
    }
    let message = msg_ring::prep(&sqe, &PrepCx::default())?;
    if msg_ring::is_cqe(&sqe) { send_msg_ring(&message, sqe.fd) } else { Err(Errno::EINVAL) }
}

/// Operations that make something. The others must work without memory.
fn needs_memory(opcode: u32) -> bool {
    matches!(
        opcode,
        reg::BUFFERS
            | reg::BUFFERS2
            | reg::FILES
            | reg::FILES2
            | reg::EVENTFD
            | reg::EVENTFD_ASYNC
            | reg::PROBE
            | reg::PERSONALITY
            | reg::RESTRICTIONS
            | reg::BPF_FILTER
            | reg::PBUF_RING
            | reg::CLONE_BUFFERS
            | reg::MEM_REGION
            | reg::RESIZE_RINGS
            | reg::NAPI
            | reg::ZCRX_IFQ
    )
}

fn run(guard: &mut UringGuard, opcode: u32, arg: UserPtr, n: u32) -> Result<usize, Errno> {
    match opcode {
        reg::BUFFERS => some(arg).and_then(|()| files::register_buffers(guard, arg, n, UserPtr::NULL)),
        reg::UNREGISTER_BUFFERS => none(arg, n).and_then(|()| files::unregister_buffers(guard)),
        reg::BUFFERS2 => files::register_resources(guard, arg, n, files::ResourceKind::Buffers),
        reg::BUFFERS_UPDATE => files::update_resources(guard, arg, n, files::ResourceKind::Buffers),
        reg::FILES => some(arg).and_then(|()| files::register_files(guard, arg, n, UserPtr::NULL)),
        reg::UNREGISTER_FILES => none(arg, n).and_then(|()| files::unregister_files(guard)),
        reg::FILES2 => files::register_resources(guard, arg, n, files::ResourceKind::Files),
        reg::FILES_UPDATE => files::update_files(guard, arg, n),
        reg::FILES_UPDATE2 => files::update_resources(guard, arg, n, files::ResourceKind::Files),
        reg::FILE_ALLOC_RANGE => files::set_alloc_range(guard, arg, n),
        reg::EVENTFD => eventfd::register(guard, arg, n, EventfdCounts::All),
        reg::EVENTFD_ASYNC => eventfd::register(guard, arg, n, EventfdCounts::Async),
        reg::UNREGISTER_EVENTFD => none(arg, n).and_then(|()| eventfd::unregister(guard)),
        reg::PROBE => probe(arg, n),
        reg::PERSONALITY => none(arg, n).and_then(|()| policy::register_personality(guard)),
        reg::UNREGISTER_PERSONALITY => none(arg, 0).and_then(|()| guard.personalities.unregister(n)).map(|()| 0),
        reg::RESTRICTIONS => policy::restrict(guard, arg, n),
        reg::BPF_FILTER => policy::filter(guard, arg, n),
        reg::ENABLE_RINGS => none(arg, n).and_then(|()| enable_rings(guard)),
        reg::IOWQ_AFF => workers::set_affinity(guard, arg, n),
        reg::UNREGISTER_IOWQ_AFF => none(arg, n).map(|()| workers::clear_affinity(guard)),
        reg::IOWQ_MAX_WORKERS => workers::set_max(guard, arg, n),
        reg::PBUF_RING => one(arg, n).and_then(|()| register_buf_ring(guard, arg)),
        reg::UNREGISTER_PBUF_RING => one(arg, n).and_then(|()| unregister_buf_ring(guard, arg)),
        reg::PBUF_STATUS => one(arg, n).and_then(|()| buf_ring_status(guard, arg)),
        reg::NAPI => one(arg, n).and_then(|()| napi::register(guard, arg)),
        reg::UNREGISTER_NAPI if n == 1 => napi::unregister(guard, arg),
        reg::QUERY => query::query(arg, n),
        reg::RESIZE_RINGS => one(arg, n).and_then(|()| resize::resize(guard, arg)),
        reg::CLOCK => wait_args::register_clock(guard, arg, n),
        reg::MEM_REGION => one(arg, n).and_then(|()| wait_args::register_region(guard, arg)),
        reg::CLONE_BUFFERS => one(arg, n).and_then(|()| clone_buffers::clone(guard, arg, ring_of)),
        reg::ZCRX_IFQ => one(arg, n).and_then(|()| zcrx::register(guard, arg)),
        reg::ZCRX_CTRL => zcrx::control(guard, arg, n),
        reg::SYNC_CANCEL => one(arg, n).and_then(|()| sync_cancel(guard, arg)),
        _ => Err(Errno::EINVAL),
    }
}

fn none(arg: UserPtr, n: u32) -> Result<(), Errno> {
    if arg.is_null() && n == 0 { Ok(()) } else { Err(Errno::EINVAL) }
}

fn some(arg: UserPtr) -> Result<(), Errno> {
    if arg.is_null() { Err(Errno::EFAULT) } else { Ok(()) }
}

fn one(arg: UserPtr, n: u32) -> Result<(), Errno> {
    if arg.is_null() || n != 1 { Err(Errno::EINVAL) } else { Ok(()) }
}

/// `IORING_REGISTER_PROBE`: the supported opcodes, from the dispatch table.
fn probe(arg: UserPtr, n: u32) -> Result<usize, Errno> {
    const HEADER: usize = 16;
    const ROW: usize = 8;
    if arg.is_null() || n > 256 {
        return Err(Errno::EINVAL);
    }
    let rows = (n as usize).min(Opcode::LAST as usize);
    let mut bytes = vec![0_u8; HEADER + n as usize * ROW];
    user::read_slice(&mut bytes, arg)?;
    if bytes.iter().any(|&b| b != 0) {
        return Err(Errno::EINVAL);
    }
    bytes.truncate(HEADER + rows * ROW);
    bytes[0] = Opcode::LAST - 1;
    bytes[1] = rows as u8;
    for (op, def) in OPCODES.iter().enumerate().take(rows) {
        let row = &mut bytes[HEADER + op * ROW..][..ROW];
        row[0] = op as u8;
        row[2] = u8::from(def.supported) * reg::OP_SUPPORTED as u8;
    }
    user::write_slice(arg, &bytes)?;
    Ok(0)
}

fn enable_rings(guard: &mut UringGuard) -> Result<usize, Errno> {
    if !guard.is_disabled {
        return Err(Errno::EBADFD);
    }
    if guard.res.setup & setup_flags::SINGLE_ISSUER != 0 && guard.issuer.is_none() {
        guard.issuer = Some(process::thread_key());
    }
    guard.is_disabled = false;
    guard.has_no_fast_path |= guard.restrictions.is_some();
    Ok(0)
}

fn register_buf_ring(guard: &mut UringGuard, arg: UserPtr) -> Result<usize, Errno> {
    let spec: BufReg = user::read(arg)?;
    guard.res.buf_groups.register_ring(&spec).map(|()| 0)
}

fn unregister_buf_ring(guard: &mut UringGuard, arg: UserPtr) -> Result<usize, Errno> {
    let spec: BufReg = user::read(arg)?;
    guard.res.buf_groups.unregister_ring(&spec).map(|()| 0)
}

fn buf_ring_status(guard: &mut UringGuard, arg: UserPtr) -> Result<usize, Errno> {
    let mut status: BufStatus = user::read(arg)?;
    if status.resv.iter().any(|&r| r != 0) {
        return Err(Errno::EINVAL);
    }
    status.head = guard.res.buf_groups.status(status.buf_group)?;
    user::write(arg, &status).map(|()| 0)
}

/// `IORING_REGISTER_SYNC_CANCEL`: cancels, and waits until the cancelled requests are complete.
fn sync_cancel(guard: &mut UringGuard, arg: UserPtr) -> Result<usize, Errno> {
    const RETRY_NS: u64 = 1_000_000;
    let spec: SyncCancelReg = user::read(arg)?;
    if spec.pad != [0; 7] || spec.pad2 != [0; 3] {
        return Err(Errno::EINVAL);
    }
    let op = CancelOp::new(spec.flags, spec.addr, spec.fd, spec.opcode)?;
    let deadline = if spec.timeout.tv_sec == -1 && spec.timeout.tv_nsec == -1 {
        u64::MAX
    } else {
        monotonic_ns().saturating_add_signed(timeout::signed_nanoseconds(spec.timeout))
    };
    let result = loop {
        match cancel_matching(guard, &op) {
            Err(Errno::EALREADY) if monotonic_ns() >= deadline => break Err(Errno::ETIME),
            // A worker was interrupted: its request completes soon, and then nothing matches.
            Err(Errno::EALREADY) => {
                guard.unlocked(|| process::sleep_ns(RETRY_NS));
            }
            other => break other,
        }
    };
    run_ready(guard, Depth::Deep);
    result
}

/// The ring that an fd argument means, with or without the "registered" bit.
#[inline]
pub(crate) fn ring_of(fd: u32, is_registered: bool) -> Result<&'static Ring, Errno> {
    if is_registered { registered_ring(fd) } else { RINGS.find(fd as i32) }
}
