//! As whom requests may act, and what a ring may be used for.

use crate::identity;
use crate::state::{Restrictions, UringGuard};
use alloc::boxed::Box;
use uringlet_abi::register::{self as reg, Restriction};
use uringlet_sys::{Errno, UserPtr, user};

/// The most entries of a list, as the kernel's: one for each that there can be.
const MAX_RESTRICTIONS: u32 = 4 + reg::LAST + 1 + uringlet_abi::Opcode::LAST as u32;

/// `IORING_REGISTER_PERSONALITY`: the identity of the calling thread. Returns its id.
///
/// # Errors
/// `EBUSY` no id is free; `EAGAIN` no thread can be started.
pub(super) fn register_personality(guard: &mut UringGuard) -> Result<usize, Errno> {
    let identity = identity::of_this_thread();
    let captured = guard.io_wq.capture(identity);
    identity::note_captured();
    if !guard.io_wq.keep_worker_of_captured(identity) {
        return Err(Errno::EAGAIN);
    }
    guard.personalities.register(captured).map(usize::from)
}

/// `IORING_REGISTER_RESTRICTIONS`: they begin when the ring is enabled.
///
/// # Errors
/// `EBADFD` it is enabled; `EBUSY` it has restrictions; `EINVAL`, `EFAULT` the list.
pub(super) fn restrict(guard: &mut UringGuard, arg: UserPtr, n: u32) -> Result<usize, Errno> {
    if !guard.is_disabled {
        return Err(Errno::EBADFD);
    }
    if guard.restrictions.is_some() {
        return Err(Errno::EBUSY);
    }
    if arg.is_null() || n > MAX_RESTRICTIONS {
        return Err(Errno::EINVAL);
    }
    let mut restrictions = Restrictions::default();
    for at in 0..n as usize {
        let entry: Restriction = user::read(arg.add(at * size_of::<Restriction>()))?;
        restrictions.add(&entry)?;
    }
    guard.restrictions = Some(Box::new(restrictions));
    Ok(0)
}

/// Whether the ring's restrictions allow an operation.
///
/// # Errors
/// `EACCES`: they do not. `EINVAL`: it is none.
pub(super) fn check(guard: &UringGuard, opcode: u32) -> Result<(), Errno> {
    match &guard.restrictions {
        Some(_) if opcode > reg::LAST => Err(Errno::EINVAL),
        Some(restrictions) if !guard.is_disabled && !restrictions.allow_register(opcode) => Err(Errno::EACCES),
        _ => Ok(()),
    }
}
