//! `uringlet trace --kernel`: the program's rings are the kernel's, and are looked at
//! (`docs/decisions/0048`).
//!
//! ```text
//!   program                    here                                     kernel
//!   io_uring_setup ---------> passed on, then the ring is mapped once more
//!   io_uring_enter ---------> SQEs up to the tail are copied
//!                             passed on ------------------------------> submits, waits
//!                             SQEs behind the head: submissions
//!                             CQEs that are new: completions
//!   takes CQEs from memory    a thread looks meanwhile (`looker`)
//!   close ------------------> a last look, the mapping goes, then passed on
//! ```
//! One lock for all rings; it is not held while a call is passed on.

mod looker;
mod pending;
mod ring;
mod table;

use crate::trace;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;
use table::{KernelRings, RINGS, RingName, RingPlace};
use uringlet_abi::{UringParams, enter as enter_flag, register as reg, setup};
use uringlet_sys::program_tid::program_tid;
use uringlet_sys::trace::{is_on, with_buffer};
use uringlet_sys::{UserPtr, fd_table, process, user};

/// There was a ring.
static HAS_RINGS: AtomicBool = AtomicBool::new(false);

/// The arguments of io_uring_enter(2) that are looked at.
#[derive(Clone, Copy, Debug)]
pub struct KernelEnter {
    /// The ring.
    pub fd: u32,
    /// SQEs.
    pub to_submit: u32,
    /// CQEs.
    pub min_complete: u32,
    /// `IORING_ENTER_*`.
    pub flags: u32,
}

/// The arguments of io_uring_register(2).
#[derive(Clone, Copy, Debug)]
pub struct KernelRegister {
    /// The ring.
    pub fd: u32,
    /// `IORING_REGISTER_*`.
    pub opcode: u32,
    /// What is registered.
    pub arg: UserPtr,
    /// How many.
    pub nr_args: u32,
}

/// After an io_uring_setup(2) of the kernel's.
pub fn ring_made(result: isize, params: UserPtr) {
    let Ok(number) = u32::try_from(result) else { return };
    let Ok(params) = user::read::<UringParams>(params) else { return };
    if process::is_foreign() || !is_on() || fd_table::init().is_err() {
        return;
    }
    HAS_RINGS.store(true, Relaxed);
    let tid = program_tid();
    let is_registered = params.flags & setup::REGISTERED_FD_ONLY != 0;
    let name = if is_registered { RingName::Registered { tid, number } } else { RingName::Descriptor(number.cast_signed()) };
    let mut rings = RINGS.lock();
    let index = rings.add(name, &params, tid);
    if let Some(place) = rings.find(name) {
        rings.map(place, &params, true);
    }
    if params.flags & setup::SQPOLL != 0 {
        looker::start();
    }
    trace::ring_made(index, &params, number.cast_signed());
}

/// An io_uring_enter(2), which `issue` makes.
pub fn enter(call: KernelEnter, issue: impl FnOnce() -> isize) -> isize {
    if !is_on() || process::is_foreign() {
        return issue();
    }
    let since = trace::entering();
    let name = name_of(call.fd, call.flags & enter_flag::REGISTERED_RING != 0);
    let place = begin(name, call.to_submit);
    let result = issue();
    end(place, result);
    if since != 0 {
        let KernelEnter { fd, to_submit, min_complete, flags } = call;
        trace::entered(trace::EnterCall { fd, to_submit, min_complete, flags, since, is_injected: false }, result);
    }
    result
}

/// An io_uring_register(2), which `issue` makes.
pub fn register(call: KernelRegister, issue: impl FnOnce() -> isize) -> isize {
    if !is_on() || process::is_foreign() {
        return issue();
    }
    let opcode = call.opcode & !reg::USE_REGISTERED_RING;
    let name = name_of(call.fd, call.opcode & reg::USE_REGISTERED_RING != 0);
    let place = begin(name, 0);
    let result = issue();
    if let (Some(place), 0..) = (place, result) {
        registered(KernelRegister { opcode, ..call }, place, result);
    }
    end(place, 0);
    let KernelRegister { fd, arg, nr_args, .. } = call;
    trace::registered(trace::RegisterCall { fd, opcode, arg: arg.addr(), nr_args, is_injected: false }, result);
    result
}

fn name_of(fd: u32, is_registered: bool) -> RingName {
    if is_registered { RingName::Registered { tid: program_tid(), number: fd } } else { RingName::Descriptor(fd.cast_signed()) }
}

/// Before a call. `None`: its ring is not known.
fn begin(name: RingName, to_submit: u32) -> Option<RingPlace> {
    let mut rings = RINGS.lock();
    let place = rings.find(name)?;
    if let Some(params) = rings.get(place).filter(|ring| !ring.is_mapped()).map(|ring| *ring.params()) {
        rings.map(place, &params, true);
    }
    let ring = rings.get(place)?;
    with_buffer(|writer| ring.begin_enter(to_submit, program_tid(), writer));
    Some(place)
}

fn end(place: Option<RingPlace>, result: isize) {
    let Some(place) = place else { return };
    let mut rings = RINGS.lock();
    if let Some(ring) = rings.get(place) {
        with_buffer(|writer| ring.end_enter(result, writer));
        if ring.needs_looks() {
            looker::start();
        }
    }
}

/// Something was registered.
fn registered(call: KernelRegister, place: RingPlace, result: isize) {
    let mut rings = RINGS.lock();
    match call.opcode {
        reg::RING_FDS | reg::UNREGISTER_RING_FDS => name_rings(&mut rings, call, result),
        reg::RESIZE_RINGS => {
            if let Ok(params) = user::read::<UringParams>(call.arg)
                && let Some(flags) = rings.get(place).map(|ring| ring.params().flags)
            {
                // What the call returns has only the flags that it takes.
                rings.map(place, &UringParams { flags, ..params }, false);
            }
        }
        reg::UNREGISTER_FILES => {
            if let Some(ring) = rings.get(place) {
                ring.unregister_files();
            }
        }
        _ => {
            if let (Some((first, numbers, count)), Some(ring)) = (registered_files(call), rings.get(place)) {
                let number = |n: u32| user::read::<i32>(UserPtr::at(numbers).add(4 * n as usize)).unwrap_or(-1);
                let is_update = matches!(call.opcode, reg::FILES_UPDATE | reg::FILES_UPDATE2);
                let count = if is_update { count.min(u32::try_from(result).unwrap_or(0)) } else { count };
                let numbers = (0..count).map(|n| if numbers == 0 { -1 } else { number(n) });
                with_buffer(|writer| ring.register_files(first, numbers, writer));
            }
        }
    }
}

/// The first slot, the address of the descriptors and their number.
fn registered_files(call: KernelRegister) -> Option<(u32, u64, u32)> {
    match call.opcode {
        reg::FILES => Some((0, call.arg.addr() as u64, call.nr_args)),
        reg::FILES_UPDATE => user::read::<reg::FilesUpdate>(call.arg).ok().map(|update| (update.offset, update.fds, call.nr_args)),
        reg::FILES2 => user::read::<reg::RsrcRegister>(call.arg).ok().map(|files| (0, files.data, files.nr)),
        reg::FILES_UPDATE2 => user::read::<reg::RsrcUpdate2>(call.arg).ok().map(|update| (update.offset, update.data, update.nr)),
        _ => None,
    }
}

/// Rings have got numbers of their own for this thread, or have lost them.
fn name_rings(rings: &mut KernelRings, call: KernelRegister, result: isize) {
    let tid = program_tid();
    for n in 0..u32::try_from(result).unwrap_or(0).min(call.nr_args) {
        let at = call.arg.add(n as usize * size_of::<reg::RsrcUpdate>());
        let Ok(update) = user::read::<reg::RsrcUpdate>(at) else { return };
        let name = RingName::Registered { tid, number: update.offset };
        if call.opcode == reg::RING_FDS {
            rings.also_name(RingName::Descriptor(i32::try_from(update.data).unwrap_or(-1)), name);
        } else {
            rings.lose(name);
        }
    }
}

/// Before the process ends or executes another program: what has come since the last call.
pub fn look() {
    if HAS_RINGS.load(Relaxed) && is_on() && !process::is_foreign() {
        let mut rings = RINGS.lock();
        with_buffer(|writer| rings.look(writer));
    }
}

/// Whether the number is that of such a ring.
#[must_use]
pub fn is_ring(fd: i32) -> bool {
    HAS_RINGS.load(Relaxed) && RINGS.lock().is_known(RingName::Descriptor(fd))
}

/// Before a number is closed or replaced.
pub(crate) fn lose_number(fd: i32) {
    if HAS_RINGS.load(Relaxed) {
        RINGS.lock().lose(RingName::Descriptor(fd));
    }
}

/// `new` is another number of `old`.
pub(crate) fn duped(old: i32, new: i32) {
    if HAS_RINGS.load(Relaxed) {
        RINGS.lock().also_name(RingName::Descriptor(old), RingName::Descriptor(new));
    }
}

/// Before a call that may change the identity of threads: ours keeps none that was given up.
pub(crate) fn before_identity_call() {
    if HAS_RINGS.load(Relaxed) {
        looker::stop();
    }
}

/// After it.
pub(crate) fn after_identity_call() {
    if HAS_RINGS.load(Relaxed) {
        let rings = RINGS.lock();
        if rings.needs_looks() {
            looker::start();
        }
    }
}

/// For fork(2).
pub(crate) fn lock_for_fork() {
    RINGS.lock_for_fork();
}

/// After fork(2), in parent and child.
pub(crate) fn unlock_after_fork() {
    RINGS.unlock_after_fork();
}

/// In a copy of a process that no handler of fork(2) has seen.
pub(crate) fn recover_in_copy() {
    RINGS.recover_in_copy(KernelRings::forgotten);
}

/// In a forked child.
pub(crate) fn forget_in_child() {
    looker::forget_in_child();
    RINGS.lock().forget_in_child();
}
