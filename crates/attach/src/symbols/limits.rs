//! Limits of the process: the engine must know the limit on the size of files.

use core::ffi::{c_int, c_uint, c_void};

use uringlet_core::ENGINE;

use super::next::{NextFunction, PRLIMIT, SETRLIMIT};
use crate::convert::Register;
use crate::entry::on_engine_stack;
use crate::in_use::is_in_use;

fn set_limit(next: &NextFunction, args: [usize; 6]) -> c_int {
    let result = next.call_int(args);
    if result == 0 && is_in_use() {
        on_engine_stack(|| ENGINE.limits_changed());
    }
    result
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn setrlimit(resource: c_int, limit: *const c_void) -> c_int {
    set_limit(&SETRLIMIT, [resource.reg(), limit.reg(), 0, 0, 0, 0])
}

// The same structure on 64-bit systems.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn setrlimit64(resource: c_int, limit: *const c_void) -> c_int {
    set_limit(&SETRLIMIT, [resource.reg(), limit.reg(), 0, 0, 0, 0])
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn prlimit(pid: c_int, resource: c_uint, new: *const c_void, old: *mut c_void) -> c_int {
    set_limit(&PRLIMIT, [pid.reg(), resource.reg(), new.reg(), old.reg(), 0, 0])
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn prlimit64(pid: c_int, resource: c_uint, new: *const c_void, old: *mut c_void) -> c_int {
    set_limit(&PRLIMIT, [pid.reg(), resource.reg(), new.reg(), old.reg(), 0, 0])
}
