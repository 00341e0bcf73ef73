//! Descriptors: `mmap`, the `close` family, the `dup` family.

use core::ffi::{c_int, c_uint, c_void};

use uringlet_core::ENGINE;
use uringlet_sys::Sysno;
use uringlet_sys::passthrough::pass_through;

use super::errno::to_libc_result;
use super::identity::call_in_own_thread;
use super::memory::note_code;
use super::next::{CLOSE, CLOSE_RANGE, CLOSEFROM, DUP, DUP2, DUP3, FCNTL, MMAP};
use crate::convert::{Register, int};
use crate::dup::is_dup_command;
use crate::entry::on_engine_stack;
use crate::in_use::is_in_use;
use crate::kernel_rings;

const MAP_FAILED: isize = -1;

fn map(addr: usize, len: usize, prot: c_int, flags: c_int, fd: c_int, offset: i64) -> *mut c_void {
    if ENGINE.is_ours(fd)
        && let Some(result) =
            on_engine_stack(|| ENGINE.mmap(addr, len, prot.cast_unsigned(), flags.cast_unsigned(), fd, offset.cast_unsigned()))
    {
        return to_libc_result(result) as *mut c_void;
    }
    let mapped = MMAP.call([addr, len, prot.reg(), flags.reg(), fd.reg(), offset.reg()]);
    if mapped != MAP_FAILED {
        note_code(mapped.cast_unsigned(), len, prot);
    }
    mapped as *mut c_void
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn mmap(addr: usize, len: usize, prot: c_int, flags: c_int, fd: c_int, offset: i64) -> *mut c_void {
    map(addr, len, prot, flags, fd, offset)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn mmap64(addr: usize, len: usize, prot: c_int, flags: c_int, fd: c_int, offset: i64) -> *mut c_void {
    map(addr, len, prot, flags, fd, offset)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn close(fd: c_int) -> c_int {
    if !ENGINE.is_unused(fd)
        && let Some(result) = on_engine_stack(|| ENGINE.close(fd))
    {
        return int(to_libc_result(result));
    }
    CLOSE.call_int([fd.reg(), 0, 0, 0, 0, 0])
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if is_in_use()
        && let Some(result) = on_engine_stack(|| ENGINE.close_range(first, last, flags.cast_unsigned()))
    {
        return int(to_libc_result(result));
    }
    call_in_own_thread(&CLOSE_RANGE, Sysno::close_range, [first.reg(), last.reg(), flags.reg(), 0, 0, 0])
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn closefrom(low: c_int) {
    let first = low.max(0).cast_unsigned();
    if is_in_use() && on_engine_stack(|| ENGINE.close_range(first, u32::MAX, 0)).is_some_and(|result| result >= 0) {
        return;
    }
    match CLOSEFROM.function() {
        // SAFETY: the program's own call, passed on.
        Some(function) => unsafe {
            function(low.reg(), 0, 0, 0, 0, 0);
        },
        None => {
            // SAFETY: as above.
            let _ = unsafe { pass_through(Sysno::close_range, [first.reg(), u32::MAX.reg(), 0, 0, 0, 0]) };
        }
    }
}

/// Tells the engine that `new` is another number of the open file `old`.
fn note_dup(old: c_int, new: c_int) -> c_int {
    if new >= 0 && new != old && (ENGINE.is_ours(old) || kernel_rings::is_ring(old)) {
        on_engine_stack(|| ENGINE.duped(old, new));
    }
    new
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn dup(old: c_int) -> c_int {
    note_dup(old, DUP.call_int([old.reg(), 0, 0, 0, 0, 0]))
}

/// dup2(2) and dup3(2)
fn replace(old: c_int, new: c_int, call: impl FnOnce() -> c_int) -> c_int {
    if is_in_use()
        && let Err(errno) = on_engine_stack(|| ENGINE.before_dup(old, new))
    {
        return int(to_libc_result(-(errno.into_raw() as isize)));
    }
    note_dup(old, call())
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
    replace(old, new, || DUP2.call_int([old.reg(), new.reg(), 0, 0, 0, 0]))
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    replace(old, new, || DUP3.call_int([old.reg(), new.reg(), flags.reg(), 0, 0, 0]))
}

fn fcntl_and_note(fd: c_int, command: c_int, argument: usize) -> c_int {
    let result = FCNTL.call_int([fd.reg(), command.reg(), argument, 0, 0, 0]);
    if is_dup_command(command) { note_dup(fd, result) } else { result }
}

// Variadic in C. The one optional argument is an int or a pointer, both in the same register.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    fcntl_and_note(fd, command, argument)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    fcntl_and_note(fd, command, argument)
}
