//! Which system calls the engine looks at.

use core::sync::atomic::{AtomicU8, Ordering};

use uringlet_core::IdentityChange;
use uringlet_sys::Sysno;

use crate::path_call_table::PATH_CALLS;
use crate::static_file::is_static;

/// Calls that are intercepted from the start. So are [`EXEC_CALLS`] and
/// [`IdentityChange::NUMBERS`].
const RING_CALLS: [Sysno; 3] = [Sysno::io_uring_setup, Sysno::io_uring_enter, Sysno::io_uring_register];

/// Calls that start a program, so that it is attached, too.
const EXEC_CALLS: [Sysno; 2] = [Sysno::execve, Sysno::execveat];

/// Calls that concern nothing but the engine's files and handlers: they are intercepted once the
/// program uses the engine.
const WITH_RINGS: [Sysno; 19] = [
    Sysno::mmap,
    Sysno::close,
    Sysno::close_range,
    Sysno::dup,
    Sysno::dup2,
    Sysno::dup3,
    Sysno::fcntl,
    Sysno::epoll_ctl,
    Sysno::epoll_wait,
    Sysno::epoll_pwait,
    Sysno::epoll_pwait2,
    Sysno::poll,
    Sysno::ppoll,
    Sysno::select,
    Sysno::pselect6,
    Sysno::rt_sigaction,
    Sysno::fork,
    Sysno::clone,
    Sysno::clone3,
];

/// What `symbols` sees in a dynamic program, and only the system call shows in a static one, once
/// the program uses the engine. [`PATH_CALLS`] are intercepted there from the start.
const STATIC_WITH_RINGS: [Sysno; 8] =
    [Sysno::read, Sysno::write, Sysno::readv, Sysno::writev, Sysno::sendmsg, Sysno::sendmmsg, Sysno::setrlimit, Sysno::prlimit64];

/// Calls that make code, or keep a signal away: they are intercepted while calls are trapped.
const WITH_TRAPS: [Sysno; 5] = [Sysno::mmap, Sysno::mprotect, Sysno::pkey_mprotect, Sysno::rt_sigaction, Sysno::rt_sigprocmask];

/// 1 at each intercepted number. Indexed by the low 16 bits of the number's register, so that a
/// lookup needs no comparison (and leaves the flags alone); `dispatch` checks the whole number.
pub(crate) static INTERCEPTED: [AtomicU8; 1 << 16] = {
    let mut table = [const { AtomicU8::new(0) }; 1 << 16];
    let lists: [&[Sysno]; 3] = [&RING_CALLS, &EXEC_CALLS, &IdentityChange::NUMBERS];
    let mut list = 0;
    while list < lists.len() {
        let mut i = 0;
        while i < lists[list].len() {
            table[lists[list][i] as usize] = AtomicU8::new(1);
            i += 1;
        }
        list += 1;
    }
    table
};

fn intercept(nr: Sysno) {
    INTERCEPTED[nr as usize].store(1, Ordering::Relaxed);
}

/// A process that is left to the kernel.
pub(crate) fn intercept_nothing() {
    let from_the_start = RING_CALLS.iter().chain(&EXEC_CALLS).chain(&IdentityChange::NUMBERS);
    from_the_start.for_each(|&nr| INTERCEPTED[nr as usize].store(0, Ordering::Relaxed));
}

/// From now on all calls are intercepted that may be.
pub(crate) fn intercept_all() {
    WITH_RINGS.into_iter().for_each(intercept);
    if is_static() {
        STATIC_WITH_RINGS.into_iter().for_each(intercept);
    }
}

/// Of a static program, before its call sites are searched. Nothing is interposed by symbols there.
pub(crate) fn intercept_static() {
    PATH_CALLS.iter().for_each(|call| intercept(call.nr));
}

/// From now on those are intercepted that concern traps.
pub(crate) fn intercept_for_traps() {
    WITH_TRAPS.into_iter().for_each(intercept);
}

/// Whether a call with this number may be intercepted in this program.
pub(crate) fn is_intercepted(nr: u32) -> bool {
    let in_all = RING_CALLS.iter().chain(&EXEC_CALLS).chain(&WITH_RINGS).chain(&WITH_TRAPS).chain(&IdentityChange::NUMBERS);
    let in_static = STATIC_WITH_RINGS.iter().chain(PATH_CALLS.iter().map(|call| &call.nr)).filter(|_| is_static());
    in_all.chain(in_static).any(|&number| number as u32 == nr)
}

/// Whether a call with this number may close a descriptor number, or give it to another file.
pub(crate) fn may_replace_a_number(nr: u32) -> bool {
    [Sysno::close, Sysno::close_range, Sysno::dup2, Sysno::dup3].iter().any(|&number| number as u32 == nr)
}

/// Whether a call with this number may start a program.
pub(crate) fn may_start_a_program(nr: u32) -> bool {
    EXEC_CALLS.iter().any(|&number| number as u32 == nr)
}

/// Whether a call with this number may change an identity.
pub(crate) fn may_change_identity(nr: u32) -> bool {
    IdentityChange::NUMBERS.iter().any(|&number| number as u32 == nr)
}
