//! The set*id family: libc changes the credentials of its own threads, the engine those of its
//! workers.

use core::ffi::{c_int, c_uint, c_void};

use uringlet::ENGINE;

use super::next::{
    CAPSET, INITGROUPS, NextFunction, SETEGID, SETEUID, SETFSGID, SETFSUID, SETGID, SETGROUPS, SETREGID, SETRESGID, SETRESUID, SETREUID,
    SETUID,
};
use crate::convert::Register;
use crate::entry::on_engine_stack;

fn set_credentials(next: &NextFunction, args: [usize; 3]) -> c_int {
    let result = next.call_int([args[0], args[1], args[2], 0, 0, 0]);
    // setfsuid returns the former id, and no error: a worker retires once too often then.
    if result >= 0 {
        on_engine_stack(|| ENGINE.credentials_changed());
    }
    result
}

macro_rules! credential_functions {
    ($($name:ident($($argument:ident: $type:ty),*) = $next:ident, $args:expr;)*) => {
        $(#[cfg_attr(not(test), unsafe(no_mangle))]
        unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            set_credentials(&$next, $args)
        })*
    };
}

credential_functions! {
    setuid(id: c_uint) = SETUID, [id.reg(), 0, 0];
    setgid(id: c_uint) = SETGID, [id.reg(), 0, 0];
    seteuid(id: c_uint) = SETEUID, [id.reg(), 0, 0];
    setegid(id: c_uint) = SETEGID, [id.reg(), 0, 0];
    setreuid(real: c_uint, effective: c_uint) = SETREUID, [real.reg(), effective.reg(), 0];
    setregid(real: c_uint, effective: c_uint) = SETREGID, [real.reg(), effective.reg(), 0];
    setresuid(real: c_uint, effective: c_uint, saved: c_uint) = SETRESUID, [real.reg(), effective.reg(), saved.reg()];
    setresgid(real: c_uint, effective: c_uint, saved: c_uint) = SETRESGID, [real.reg(), effective.reg(), saved.reg()];
    setfsuid(id: c_uint) = SETFSUID, [id.reg(), 0, 0];
    setfsgid(id: c_uint) = SETFSGID, [id.reg(), 0, 0];
    setgroups(count: usize, groups: *const c_void) = SETGROUPS, [count, groups.reg(), 0];
    initgroups(user: *const c_void, group: c_uint) = INITGROUPS, [user.reg(), group.reg(), 0];
    capset(header: *const c_void, data: *const c_void) = CAPSET, [header.reg(), data.reg(), 0];
}
