//! The set*id family: libc changes the credentials of its own threads, the engine those of its
//! workers.

use core::ffi::{c_int, c_uint, c_void};

use uringlet::ENGINE;

use super::next::{
    CAPSET, INITGROUPS, NextFunction, SETEGID, SETEUID, SETFSGID, SETFSUID, SETGID, SETGROUPS, SETREGID, SETRESGID, SETRESUID, SETREUID,
    SETUID,
};
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
    setuid(id: c_uint) = SETUID, [id as usize, 0, 0];
    setgid(id: c_uint) = SETGID, [id as usize, 0, 0];
    seteuid(id: c_uint) = SETEUID, [id as usize, 0, 0];
    setegid(id: c_uint) = SETEGID, [id as usize, 0, 0];
    setreuid(real: c_uint, effective: c_uint) = SETREUID, [real as usize, effective as usize, 0];
    setregid(real: c_uint, effective: c_uint) = SETREGID, [real as usize, effective as usize, 0];
    setresuid(real: c_uint, effective: c_uint, saved: c_uint) = SETRESUID, [real as usize, effective as usize, saved as usize];
    setresgid(real: c_uint, effective: c_uint, saved: c_uint) = SETRESGID, [real as usize, effective as usize, saved as usize];
    setfsuid(id: c_uint) = SETFSUID, [id as usize, 0, 0];
    setfsgid(id: c_uint) = SETFSGID, [id as usize, 0, 0];
    setgroups(count: usize, groups: *const c_void) = SETGROUPS, [count, groups as usize, 0];
    initgroups(user: *const c_void, group: c_uint) = INITGROUPS, [user as usize, group as usize, 0];
    capset(header: *const c_void, data: *const c_void) = CAPSET, [header as usize, data as usize, 0];
}
