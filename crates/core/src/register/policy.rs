//! As whom requests may act, and what a ring may be used for.

use super::bpf_filter::NewFilter;
use crate::identity;
use crate::state::{Restrictions, RingState, TaskPolicy, UringGuard, task_policy};
use alloc::boxed::Box;
use uringlet_abi::register::{self as reg, Restriction, TaskRestriction};
use uringlet_sys::linux::general::CAP_SYS_ADMIN;
use uringlet_sys::process::{self, has_capability};
use uringlet_sys::seccomp::has_no_new_privs;
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
    guard.restrictions = Some(Box::new(read_restrictions(arg, n)?));
    Ok(0)
}

fn read_restrictions(arg: UserPtr, n: u32) -> Result<Restrictions, Errno> {
    if arg.is_null() || n > MAX_RESTRICTIONS {
        return Err(Errno::EINVAL);
    }
    let mut restrictions = Restrictions::default();
    for at in 0..n as usize {
        let entry: Restriction = user::read(arg.add(at * size_of::<Restriction>()))?;
        restrictions.add(&entry)?;
    }
    Ok(restrictions)
}

/// `IORING_REGISTER_RESTRICTIONS` without a ring: of all rings that are made later.
///
/// # Errors
/// `EPERM` there are some; `EACCES` without `no_new_privs` and `CAP_SYS_ADMIN`; `EINVAL`, `EFAULT`
/// the list.
pub(super) fn restrict_task(arg: UserPtr, n: u32) -> Result<usize, Errno> {
    if task_policy::current().restrictions.is_some() {
        return Err(Errno::EPERM);
    }
    check_may_confine()?;
    if n != 1 {
        return Err(Errno::EINVAL);
    }
    let head: TaskRestriction = user::read(arg)?;
    if head.flags != 0 || head.resv != [0; 3] {
        return Err(Errno::EINVAL);
    }
    let restrictions = read_restrictions(arg.add(size_of::<TaskRestriction>()), head.nr_res.into())?;
    task_policy::change(|policy| {
        if policy.restrictions.is_some() {
            return Err(Errno::EPERM);
        }
        policy.restrictions = Some(restrictions.only_what_is_named());
        Ok(0)
    })
}

/// `IORING_REGISTER_BPF_FILTER`.
///
/// # Errors
/// Those of [`NewFilter::read`].
pub(super) fn filter(guard: &mut UringGuard, arg: UserPtr, n: u32) -> Result<usize, Errno> {
    let filter = NewFilter::read(arg, n)?;
    filter.add_to(guard.filters.get_or_insert_default());
    guard.has_no_fast_path = true;
    Ok(0)
}

/// `IORING_REGISTER_BPF_FILTER` without a ring: of all rings that are made later.
///
/// # Errors
/// `EACCES` without `no_new_privs` and `CAP_SYS_ADMIN`; those of [`NewFilter::read`].
pub(super) fn filter_task(arg: UserPtr, n: u32) -> Result<usize, Errno> {
    check_may_confine()?;
    let filter = NewFilter::read(arg, n)?;
    task_policy::change(|policy| filter.add_to(&mut policy.filters));
    Ok(0)
}

/// As for seccomp(2): a program with more rights than its starter is not to be led astray.
fn check_may_confine() -> Result<(), Errno> {
    if process::is_foreign() {
        // A child that shares this memory would confine its parent.
        return Err(Errno::EPERM);
    }
    if has_no_new_privs() || has_capability(CAP_SYS_ADMIN) { Ok(()) } else { Err(Errno::EACCES) }
}

/// A new ring begins with what the process has registered.
pub(super) fn apply_task_policy(state: &mut RingState) {
    let TaskPolicy { restrictions, filters } = task_policy::current();
    state.has_no_fast_path |= restrictions.is_some() || !filters.is_empty();
    state.restrictions = restrictions.map(Box::new);
    state.filters = (!filters.is_empty()).then(|| Box::new(filters));
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
