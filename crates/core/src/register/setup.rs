//! io_uring_setup(2).

use super::policy;
use crate::driver::command::complete_command;
use crate::ring::SubmitBaton;
use crate::state::WorkerPool;
use crate::state::{LockOwner, RINGS, RingState};
use crate::trace;
use crate::write;
use alloc::sync::Arc;
use uringlet_abi::{CqOffsets, SqOffsets, UringParams, feat, layout, setup, sq_flags};
use uringlet_sys::fd::{EventFd, RingFd};
use uringlet_sys::ring_memory::{Geometry, RingMemory};
use uringlet_sys::{Errno, UserPtr, process, reserve, user};

const KNOWN: u32 = setup::IOPOLL
    | setup::SQPOLL
    | setup::SQ_AFF
    | setup::CQSIZE
    | setup::CLAMP
    | setup::ATTACH_WQ
    | setup::R_DISABLED
    | setup::SUBMIT_ALL
    | setup::COOP_TASKRUN
    | setup::TASKRUN_FLAG
    | setup::SQE128
    | setup::CQE32
    | setup::SINGLE_ISSUER
    | setup::DEFER_TASKRUN
    | setup::NO_MMAP
    | setup::REGISTERED_FD_ONLY
    | setup::NO_SQARRAY
    | setup::HYBRID_IOPOLL
    | setup::CQE_MIXED
    | setup::SQE_MIXED
    | setup::SQ_REWIND
    | setup::URINGLET;

/// The flags that are the kernel's, too.
pub(super) const PUBLIC: u32 = KNOWN & !setup::URINGLET;

/// The supported features. Not supported: `RW_ATTR`. `NO_IOWAIT`: a thread that waits
/// never counts as one that waits for I/O.
pub(super) const FEATURES: u32 = feat::SINGLE_MMAP
    | feat::NODROP
    | feat::SUBMIT_STABLE
    | feat::RW_CUR_POS
    | feat::CUR_PERSONALITY
    | feat::FAST_POLL
    | feat::POLL_32BITS
    | feat::SQPOLL_NONFIXED
    | feat::EXT_ARG
    | feat::NATIVE_WORKERS
    | feat::RSRC_TAGS
    | feat::CQE_SKIP
    | feat::LINKED_FILE
    | feat::REG_REG_RING
    | feat::RECVSEND_BUNDLE
    | feat::MIN_TIMEOUT
    | feat::NO_IOWAIT;

/// Makes a ring. Returns its descriptor, or its registered number with `REGISTERED_FD_ONLY`.
///
/// # Errors
/// Those of io_uring_setup(2).
pub(crate) fn setup(entries: u32, arg: UserPtr) -> Result<usize, Errno> {
    let mut params: UringParams = user::read(arg)?;
    if params.resv != [0; 3] || params.flags & !KNOWN != 0 {
        return Err(Errno::EINVAL);
    }
    check_flags(&params)?;
    reserve::ensure()?;
    process::refresh_file_size_limit();
    let geometry = geometry(entries, &params)?;
    let memory = memory(geometry, &params)?;
    let io_wq = pool(&params, geometry.sq_entries)?;
    check_affinity(&params)?;
    params.features = FEATURES;
    describe(&mut params, &geometry);
    user::write(arg, &params)?;
    open(memory, io_wq, &params)
}

/// Refuses invalid combinations of flags.
fn check_flags(params: &UringParams) -> Result<(), Errno> {
    let has = |flag| params.flags & flag != 0;
    let task_run = setup::COOP_TASKRUN | setup::TASKRUN_FLAG | setup::DEFER_TASKRUN;
    let is_senseless = (has(setup::SQPOLL) && has(task_run))
        || (has(setup::TASKRUN_FLAG) && !has(setup::COOP_TASKRUN | setup::DEFER_TASKRUN))
        || (has(setup::DEFER_TASKRUN) && !has(setup::SINGLE_ISSUER))
        || (has(setup::HYBRID_IOPOLL) && !has(setup::IOPOLL))
        || (has(setup::REGISTERED_FD_ONLY) && !has(setup::NO_MMAP))
        || (has(setup::CQE_MIXED) && has(setup::CQE32))
        || (has(setup::SQE_MIXED) && has(setup::SQE128))
        || (has(setup::SQ_REWIND) && (!has(setup::NO_SQARRAY) || has(setup::SQPOLL)));
    if is_senseless { Err(Errno::EINVAL) } else { Ok(()) }
}

/// The size that a program asks for.
///
/// # Errors
/// `EINVAL`, `EOVERFLOW`: a number of entries that no ring has.
pub(super) fn geometry(entries: u32, params: &UringParams) -> Result<Geometry, Errno> {
    let has = |flag| params.flags & flag != 0;
    let sq_entries = clamp(entries, layout::MAX_ENTRIES, has(setup::CLAMP))?.next_power_of_two();
    let cq_entries = if has(setup::CQSIZE) {
        let asked = clamp(params.cq_entries, layout::MAX_CQ_ENTRIES, has(setup::CLAMP))?.next_power_of_two();
        if asked < sq_entries {
            return Err(Errno::EINVAL);
        }
        asked
    } else {
        2 * sq_entries
    };
    if (has(setup::CQE_MIXED) && cq_entries < 2) || (has(setup::SQE_MIXED) && sq_entries < 2) {
        return Err(Errno::EOVERFLOW);
    }
    Ok(Geometry {
        sq_entries,
        cq_entries,
        sqe_shift: if has(setup::SQE128) { 7 } else { 6 },
        cqe_shift: if has(setup::CQE32) { 5 } else { 4 },
        has_sq_array: !has(setup::NO_SQARRAY),
    })
}

fn clamp(n: u32, max: u32, may_clamp: bool) -> Result<u32, Errno> {
    match n {
        0 => Err(Errno::EINVAL),
        n if n <= max => Ok(n),
        _ if may_clamp => Ok(max),
        _ => Err(Errno::EINVAL),
    }
}

/// Memory for the queues of a ring, or what the program supplies for it.
///
/// # Errors
/// Those of [`RingMemory::new`] and [`RingMemory::from_user`].
pub(super) fn memory(geometry: Geometry, params: &UringParams) -> Result<RingMemory, Errno> {
    if params.flags & setup::NO_MMAP == 0 {
        return RingMemory::new(geometry);
    }
    RingMemory::from_user(geometry, UserPtr::at(params.cq_off.user_addr), UserPtr::at(params.sq_off.user_addr))
}

/// Fills in sizes and offsets for the program.
pub(super) fn describe(params: &mut UringParams, geometry: &Geometry) {
    let is_program_memory = params.flags & setup::NO_MMAP != 0;
    let keep = |addr| if is_program_memory { addr } else { 0 };
    params.sq_entries = geometry.sq_entries;
    params.cq_entries = geometry.cq_entries;
    params.sq_off = SqOffsets {
        head: layout::SQ_HEAD,
        tail: layout::SQ_TAIL,
        ring_mask: layout::SQ_RING_MASK,
        ring_entries: layout::SQ_RING_ENTRIES,
        flags: layout::SQ_FLAGS,
        dropped: layout::SQ_DROPPED,
        array: if geometry.has_sq_array { geometry.array_offset() as u32 } else { 0 },
        resv1: 0,
        user_addr: keep(params.sq_off.user_addr),
    };
    params.cq_off = CqOffsets {
        head: layout::CQ_HEAD,
        tail: layout::CQ_TAIL,
        ring_mask: layout::CQ_RING_MASK,
        ring_entries: layout::CQ_RING_ENTRIES,
        overflow: layout::CQ_OVERFLOW,
        cqes: layout::CQES,
        flags: layout::CQ_FLAGS,
        resv1: 0,
        user_addr: keep(params.cq_off.user_addr),
    };
}

/// The pool of the ring to attach to, or one of its own. The parameters do not hold the entries
/// yet.
fn pool(params: &UringParams, sq_entries: u32) -> Result<WorkerPool, Errno> {
    if params.flags & setup::ATTACH_WQ == 0 {
        return Ok(WorkerPool::new(sq_entries));
    }
    let other = RINGS.find(params.wq_fd as i32).map_err(|errno| match errno {
        Errno::EBADF => Errno::ENXIO,
        _ => Errno::EINVAL,
    })?;
    let guard = other.lock(LockOwner::Worker).ok_or(Errno::ENXIO)?;
    // A poll thread is shared with a ring that has one (io_uring_setup(2)).
    if params.flags & setup::SQPOLL != 0 && guard.res.setup & setup::SQPOLL == 0 {
        return Err(Errno::EINVAL);
    }
    Ok(guard.io_wq.clone())
}

/// A CPU may be given for a poll thread only, and must exist.
fn check_affinity(params: &UringParams) -> Result<(), Errno> {
    let has = |flag| params.flags & flag != 0;
    let is_senseless = has(setup::SQ_AFF) && (!has(setup::SQPOLL) || params.sq_thread_cpu >= process::cpu_count());
    if is_senseless { Err(Errno::EINVAL) } else { Ok(()) }
}

fn open(memory: RingMemory, io_wq: WorkerPool, params: &UringParams) -> Result<usize, Errno> {
    let wake_eventfd = Arc::new(EventFd::new()?);
    let (app_fd, fd) = RingFd::open()?;
    let (ring, generation) = match RINGS.take() {
        Ok(place) => place,
        Err(errno) => {
            let _ = uringlet_sys::io::close(app_fd);
            return Err(errno);
        }
    };
    let mut state = RingState::new(generation, memory, params.flags, io_wq, fd);
    state.baton = Some(SubmitBaton::new(params.flags));
    state.complete_command = complete_command;
    state.res.wake_eventfd = Some(wake_eventfd);
    state.res.mode = write::mode_for(params.flags);
    state.is_disabled = params.flags & setup::R_DISABLED != 0;
    state.has_no_fast_path = params.flags & setup::IOPOLL != 0;
    policy::apply_task_policy(&mut state);
    if params.flags & setup::SINGLE_ISSUER != 0 && !state.is_disabled {
        state.issuer = Some(process::thread_key());
    }
    if params.flags & setup::SQPOLL != 0 {
        state.res.set_sq_flag(sq_flags::NEED_WAKEUP, true);
    }
    ring.open(state);
    RINGS.name(ring, app_fd);
    if trace::is_on() {
        trace::ring_made(ring.index, params, app_fd);
    }
    if params.flags & setup::REGISTERED_FD_ONLY == 0 {
        return Ok(app_fd as usize);
    }
    super::ring_fds::register_only(ring, app_fd)
}
