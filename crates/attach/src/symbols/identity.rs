//! What a thread acts as: libc changes its own threads or the calling one, the engine is told
//! around it.

use core::ffi::{c_int, c_uint, c_void};

use uringlet_core::{ENGINE, IdentityChange};
use uringlet_sys::Sysno;

use super::next::{
    CAPSET, INITGROUPS, NextFunction, PRCTL, SETEGID, SETEUID, SETFSGID, SETFSUID, SETGID, SETGROUPS, SETNS, SETREGID, SETRESGID,
    SETRESUID, SETREUID, SETUID, UNSHARE,
};
use crate::convert::Register;
use crate::entry::on_engine_stack;
use crate::exec;
use crate::in_use::is_in_use;
use crate::trap;

/// Calls libc's function, which changes this.
fn call_around(next: &NextFunction, args: [usize; 6], change: Option<IdentityChange>) -> c_int {
    let Some(change) = change else { return next.call_int(args) };
    if !is_in_use() {
        // Nothing but a note is taken, which needs no stack of the engine's.
        ENGINE.before_identity_call(change);
        let result = next.call_int(args);
        ENGINE.after_identity_call(change, result as isize);
        note_filter(change, result);
        return result;
    }
    on_engine_stack(|| ENGINE.before_identity_call(change));
    let result = next.call_int(args);
    on_engine_stack(|| ENGINE.after_identity_call(change, result as isize));
    note_filter(change, result);
    result
}

fn note_filter(change: IdentityChange, result: c_int) {
    if change.is_filter && result >= 0 {
        trap::note_filter();
    }
}

/// Calls libc's function, which is the system call `of`.
pub(super) fn call_in_own_thread(next: &NextFunction, of: Sysno, args: [usize; 6]) -> c_int {
    let [first, second, third, ..] = args;
    let result = call_around(next, args, IdentityChange::of(of, [first, second, third]));
    exec::note_filter(of, [first, second, third], result as isize);
    result
}

/// Calls libc's function, which does in all of libc's threads what `of` does in one.
fn call_in_all_threads(next: &NextFunction, of: Sysno, args: [usize; 6]) -> c_int {
    call_around(next, args, IdentityChange::of(of, [0; 3]).map(IdentityChange::in_all_threads))
}

macro_rules! identity_functions {
    ($road:ident: $($name:ident($($argument:ident: $type:ty),*) = $next:ident of $nr:ident;)*) => {
        $(#[cfg_attr(not(test), unsafe(no_mangle))]
        unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            let mut args = [0; 6];
            for (register, value) in args.iter_mut().zip([$($argument.reg()),*]) {
                *register = value;
            }
            $road(&$next, Sysno::$nr, args)
        })*
    };
}

// By the system call alone a thread changes nothing but itself. libc takes its other threads along.
identity_functions! {
    call_in_all_threads:
    setuid(id: c_uint) = SETUID of setuid;
    setgid(id: c_uint) = SETGID of setgid;
    seteuid(id: c_uint) = SETEUID of setresuid;
    setegid(id: c_uint) = SETEGID of setresgid;
    setreuid(real: c_uint, effective: c_uint) = SETREUID of setreuid;
    setregid(real: c_uint, effective: c_uint) = SETREGID of setregid;
    setresuid(real: c_uint, effective: c_uint, saved: c_uint) = SETRESUID of setresuid;
    setresgid(real: c_uint, effective: c_uint, saved: c_uint) = SETRESGID of setresgid;
    setgroups(count: usize, groups: *const c_void) = SETGROUPS of setgroups;
    initgroups(user: *const c_void, group: c_uint) = INITGROUPS of setgroups;
}

identity_functions! {
    call_in_own_thread:
    setfsuid(id: c_uint) = SETFSUID of setfsuid;
    setfsgid(id: c_uint) = SETFSGID of setfsgid;
    capset(header: *const c_void, data: *const c_void) = CAPSET of capset;
    unshare(flags: c_int) = UNSHARE of unshare;
    setns(fd: c_int, kinds: c_int) = SETNS of setns;
    // Variadic in C. Its optional arguments are integers or pointers, in the same registers.
    prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) = PRCTL of prctl;
}
