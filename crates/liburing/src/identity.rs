//! What a thread acts as: the engine is told around the calls that change it.
//!
//! As in [`hooks`](crate::hooks), functions of ours precede libc's in the slots through which
//! objects call them. Not seen are system call instructions in the program's own code and libc's
//! functions found by dlsym; for these the engine compares the file system ids when it hands a
//! request to another thread.

use core::ffi::CStr;

use uringlet_core::{ENGINE, IdentityChange};
use uringlet_sys::Sysno;

use crate::arch::{address_of_weak, syscall_entry};
use crate::syscall::int;
use crate::weak::{self, Arg};

/// System calls of lower numbers are looked up in [`MAY_CHANGE`].
pub(crate) const NUMBERS: usize = 512;

/// 1 at the number of each system call that may change an identity.
pub(crate) static MAY_CHANGE: [u8; NUMBERS] = {
    let mut table = [0; NUMBERS];
    let mut i = 0;
    while i < IdentityChange::NUMBERS.len() {
        table[IdentityChange::NUMBERS[i] as usize] = 1;
        i += 1;
    }
    table
};

/// The call, by its number and first arguments.
fn around(change: Option<IdentityChange>, call: impl FnOnce() -> isize) -> isize {
    let Some(change) = change else { return call() };
    ENGINE.before_identity_call(change);
    let result = call();
    ENGINE.after_identity_call(change, result);
    result
}

fn in_own_thread(nr: Sysno, args: [Arg; 3]) -> Option<IdentityChange> {
    IdentityChange::of(nr, args)
}

/// libc does in all of its threads what the system call does in one.
fn in_all_threads(nr: Sysno, args: [Arg; 3]) -> Option<IdentityChange> {
    IdentityChange::of(nr, args).map(IdentityChange::in_all_threads)
}

macro_rules! identity_functions {
    ($($name:ident = $symbol:literal: $nr:ident $threads:ident;)*) => {
        // Five registers, whatever the function takes.
        $(pub(crate) extern "C" fn $name(a: Arg, b: Arg, c: Arg, d: Arg, e: Arg) -> i32 {
            int(around($threads(Sysno::$nr, [a, b, c]), || weak::call_int(address_of_weak!($symbol), [a, b, c, d, e]) as isize))
        })*

        /// The function of ours that precedes libc's of this name.
        pub(crate) fn preceding(name: &CStr) -> Option<usize> {
            match name.to_bytes() {
                b"syscall" => Some(syscall_entry as *const () as usize),
                $(known if known == $symbol.as_bytes() => Some($name as *const () as usize),)*
                _ => None,
            }
        }
    };
}

identity_functions! {
    setuid = "setuid": setuid in_all_threads;
    setgid = "setgid": setgid in_all_threads;
    seteuid = "seteuid": setresuid in_all_threads;
    setegid = "setegid": setresgid in_all_threads;
    setreuid = "setreuid": setreuid in_all_threads;
    setregid = "setregid": setregid in_all_threads;
    setresuid = "setresuid": setresuid in_all_threads;
    setresgid = "setresgid": setresgid in_all_threads;
    setgroups = "setgroups": setgroups in_all_threads;
    initgroups = "initgroups": setgroups in_all_threads;
    setfsuid = "setfsuid": setfsuid in_own_thread;
    setfsgid = "setfsgid": setfsgid in_own_thread;
    capset = "capset": capset in_own_thread;
    prctl = "prctl": prctl in_own_thread;
    unshare = "unshare": unshare in_own_thread;
    setns = "setns": setns in_own_thread;
    close_range = "close_range": close_range in_own_thread;
}

/// syscall(2) with a number of [`MAY_CHANGE`]: [`syscall_entry`] leads here.
pub(crate) extern "C" fn identity_syscall(nr: usize, a: Arg, b: Arg, c: Arg, d: Arg, e: Arg, f: Arg) -> isize {
    let change = Sysno::new(nr).and_then(|nr| in_own_thread(nr, [a, b, c]));
    around(change, || weak::call_syscall([nr, a, b, c, d, e, f]))
}
