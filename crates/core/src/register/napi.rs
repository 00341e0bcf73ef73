//! `IORING_REGISTER_NAPI, UNREGISTER_NAPI`: how network devices are to be polled.
//! Source:  io_uring_register_napi(3); behaviour of Linux 6.18 io_uring/napi.c (not its code).
//! Differs: no effect: a wait sleeps until the network wakes it. Whether there is a device of an id
//!          is not known; ids that can only be processors' numbers are refused.

use crate::state::{Napi, UringGuard};
use uringlet_abi::register::{
    NAPI_REGISTER_OP, NAPI_STATIC_ADD_ID, NAPI_STATIC_DEL_ID, NAPI_TRACKING_DYNAMIC, NAPI_TRACKING_STATIC, NapiReg,
};
use uringlet_abi::setup;
use uringlet_sys::{Errno, UserPtr, process, user};

/// The longest that is ever polled, microseconds.
const BUSY_POLL_MAX_US: u32 = 10_000;

/// # Errors
/// `EINVAL` an IOPOLL ring, reserved fields, an unknown operation or tracking, ids without static
/// tracking; `EFAULT`; `EEXIST`, `ENOENT` of an id.
pub(super) fn register(guard: &mut UringGuard, arg: UserPtr) -> Result<usize, Errno> {
    if guard.res.setup & setup::IOPOLL != 0 {
        return Err(Errno::EINVAL);
    }
    let asked: NapiReg = user::read(arg)?;
    if asked.pad != [0; 2] || asked.resv != 0 {
        return Err(Errno::EINVAL);
    }
    let former = NapiReg { op_param: guard.napi.tracking, ..guard.napi.told() };
    user::write(arg, &former)?;
    match asked.opcode {
        NAPI_REGISTER_OP if matches!(asked.op_param, NAPI_TRACKING_DYNAMIC | NAPI_TRACKING_STATIC) => {
            guard.napi = Napi {
                busy_poll_to: asked.busy_poll_to.min(BUSY_POLL_MAX_US),
                prefer_busy_poll: asked.prefer_busy_poll != 0,
                tracking: asked.op_param,
                ..Napi::default()
            };
            Ok(0)
        }
        NAPI_STATIC_ADD_ID => add_id(&mut guard.napi, asked.op_param),
        NAPI_STATIC_DEL_ID => remove_id(&mut guard.napi, asked.op_param),
        _ => Err(Errno::EINVAL),
    }
}

fn add_id(napi: &mut Napi, id: u32) -> Result<usize, Errno> {
    check_id(napi, id)?;
    if napi.ids.contains(&id) {
        return Err(Errno::EEXIST);
    }
    napi.ids.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
    napi.ids.push(id);
    Ok(0)
}

fn remove_id(napi: &mut Napi, id: u32) -> Result<usize, Errno> {
    check_id(napi, id)?;
    let at = napi.ids.iter().position(|&known| known == id).ok_or(Errno::ENOENT)?;
    napi.ids.swap_remove(at);
    Ok(0)
}

/// The kernel's ids begin above the number of processors.
fn check_id(napi: &Napi, id: u32) -> Result<(), Errno> {
    if napi.tracking == NAPI_TRACKING_STATIC && id > process::cpu_count() { Ok(()) } else { Err(Errno::EINVAL) }
}

/// # Errors
/// `EFAULT`.
pub(super) fn unregister(guard: &mut UringGuard, arg: UserPtr) -> Result<usize, Errno> {
    if !arg.is_null() {
        user::write(arg, &guard.napi.told())?;
    }
    guard.napi = Napi::default();
    Ok(0)
}
