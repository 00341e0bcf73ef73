//! Descriptors: `mmap`, the `close` family, the `dup` family.

use core::ffi::{c_int, c_uint, c_void};

use syscalls::Sysno;
use uringlet::ENGINE;

use super::next::{CLOSE, CLOSE_RANGE, CLOSEFROM, DUP, DUP2, DUP3, FCNTL, MMAP};
use super::returned;
use crate::dispatch::{before_replace, pass_through};
use crate::entry::on_engine_stack;

unsafe fn map(addr: usize, len: usize, prot: c_int, flags: c_int, fd: c_int, offset: i64) -> *mut c_void {
    if ENGINE.is_ours(fd)
        && let Some(result) = on_engine_stack(|| ENGINE.mmap(addr, len, prot as u32, flags as u32, fd, offset as u64))
    {
        return returned(result) as *mut c_void;
    }
    MMAP.call([addr, len, prot as usize, flags as usize, fd as usize, offset as usize]) as *mut c_void
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn mmap(addr: usize, len: usize, prot: c_int, flags: c_int, fd: c_int, offset: i64) -> *mut c_void {
    // SAFETY: the program's own call.
    unsafe { map(addr, len, prot, flags, fd, offset) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn mmap64(addr: usize, len: usize, prot: c_int, flags: c_int, fd: c_int, offset: i64) -> *mut c_void {
    // SAFETY: the program's own call.
    unsafe { map(addr, len, prot, flags, fd, offset) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn close(fd: c_int) -> c_int {
    match on_engine_stack(|| ENGINE.close(fd)) {
        Some(result) => returned(result) as c_int,
        None => CLOSE.call_int([fd as usize, 0, 0, 0, 0, 0]),
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    match on_engine_stack(|| ENGINE.close_range(first, last, flags as u32)) {
        Some(result) => returned(result) as c_int,
        None => CLOSE_RANGE.call_int([first as usize, last as usize, flags as usize, 0, 0, 0]),
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn closefrom(low: c_int) {
    let first = low.max(0) as u32;
    if on_engine_stack(|| ENGINE.close_range(first, u32::MAX, 0)).is_some_and(|result| result >= 0) {
        return;
    }
    match CLOSEFROM.function() {
        // SAFETY: the program's own call, passed on.
        Some(function) => unsafe {
            function(low as usize, 0, 0, 0, 0, 0);
        },
        None => {
            pass_through(Sysno::close_range, [first as usize, u32::MAX as usize, 0]);
        }
    }
}

/// Tells the engine of a new number for an old description.
fn told(old: c_int, new: c_int) -> c_int {
    if new >= 0 && new != old {
        on_engine_stack(|| ENGINE.duped(old, new));
    }
    new
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn dup(old: c_int) -> c_int {
    told(old, DUP.call_int([old as usize, 0, 0, 0, 0, 0]))
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
    on_engine_stack(|| before_replace(old, new));
    told(old, DUP2.call_int([old as usize, new as usize, 0, 0, 0, 0]))
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    on_engine_stack(|| before_replace(old, new));
    told(old, DUP3.call_int([old as usize, new as usize, flags as usize, 0, 0, 0]))
}

fn control(fd: c_int, command: c_int, argument: usize) -> c_int {
    const F_DUPFD: c_int = 0;
    const F_DUPFD_CLOEXEC: c_int = 1030;
    let result = FCNTL.call_int([fd as usize, command as usize, argument, 0, 0, 0]);
    match command {
        F_DUPFD | F_DUPFD_CLOEXEC => told(fd, result),
        _ => result,
    }
}

// Variadic in C. The one optional argument is an int or a pointer, which arrives in the same register.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    control(fd, command, argument)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    control(fd, command, argument)
}
