//! `IORING_REGISTER_RESIZE_RINGS`: queues of another size, which the program maps anew.
//!
//! Only `DEFER_TASKRUN` rings: one thread submits, waits and resizes, and so none of the program's
//! reads the queues meanwhile. Threads of the engine use a ring's memory only under its lock, which
//! is held from the first copied entry to the exchange, and look it up each time they have taken
//! the lock. What processes share beside the queues stays where it is (`RingMemory::take_queues`).
//!
//! Source:  behaviour of Linux 6.18 io_uring/register.c (not its code).
//! Errors:  EINVAL no such ring, unknown flags, sizes; EFAULT; ENOMEM; EOVERFLOW entries that wait
//!          have no room.
//! Differs: the offset of the SQ array is told; entries of 32 and 128 bytes are copied whole.

use super::setup::{describe, geometry, memory};
use crate::ring::resize::move_queues;
use crate::state::UringGuard;
use crate::submit::{give_baton_back, take_baton};
use uringlet_abi::{UringParams, setup};
use uringlet_sys::{Errno, UserPtr, user};

/// What a resized ring keeps.
const KEPT: u32 = setup::NO_SQARRAY | setup::SQE128 | setup::CQE32 | setup::NO_MMAP | setup::CQE_MIXED | setup::SQE_MIXED;

/// Resizes the queues, and tells their sizes and offsets.
///
/// # Errors
/// See the module.
pub(super) fn resize(guard: &mut UringGuard, arg: UserPtr) -> Result<usize, Errno> {
    if guard.res.setup & setup::DEFER_TASKRUN == 0 {
        return Err(Errno::EINVAL);
    }
    let mut params: UringParams = user::read(arg)?;
    if params.flags & !(setup::CQSIZE | setup::CLAMP) != 0 {
        return Err(Errno::EINVAL);
    }
    params.flags |= guard.res.setup & KEPT;
    let geometry = geometry(params.sq_entries, &params)?;
    let new = memory(geometry, &params)?;
    describe(&mut params, &geometry);
    user::write(arg, &params)?;
    let mut baton = take_baton(guard);
    if guard.is_shared() {
        baton.resync_head(&guard.res.memory);
    }
    let res = &mut guard.res;
    let moved = move_queues(&mut res.memory, &res.cq, &baton, new);
    give_baton_back(guard, baton);
    moved.map(|()| 0)
}
