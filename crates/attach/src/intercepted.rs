//! Which system calls the engine looks at.

use core::sync::atomic::{AtomicU8, Ordering};

use uringlet::IdentityChange;
use uringlet_sys::Sysno;

/// Calls that are intercepted from the start. So are [`IdentityChange::NUMBERS`].
const RING_CALLS: [Sysno; 3] = [Sysno::io_uring_setup, Sysno::io_uring_enter, Sysno::io_uring_register];

/// Calls that concern nothing but the engine's files and handlers: they are intercepted once the
/// program uses the engine.
const WITH_RINGS: [Sysno; 16] = [
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
];

/// 1 at each intercepted number. Indexed by the low 16 bits of the number's register, so that a
/// lookup needs no comparison (and leaves the flags alone); `dispatch` checks the whole number.
pub(crate) static INTERCEPTED: [AtomicU8; 1 << 16] = {
    let mut table = [const { AtomicU8::new(0) }; 1 << 16];
    let lists: [&[Sysno]; 2] = [&RING_CALLS, &IdentityChange::NUMBERS];
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

/// From now on all calls are intercepted that may be.
pub(crate) fn intercept_all() {
    for nr in WITH_RINGS {
        INTERCEPTED[nr as usize].store(1, Ordering::Relaxed);
    }
}

/// Whether a call with this number may be intercepted.
pub(crate) fn is_intercepted(nr: u32) -> bool {
    RING_CALLS.iter().chain(&WITH_RINGS).chain(&IdentityChange::NUMBERS).any(|&number| number as u32 == nr)
}

/// Whether a call with this number may close a descriptor number, or give it to another file.
pub(crate) fn may_replace_a_number(nr: u32) -> bool {
    [Sysno::close, Sysno::close_range, Sysno::dup2, Sysno::dup3].iter().any(|&number| number as u32 == nr)
}

/// Whether a call with this number may change an identity.
pub(crate) fn may_change_identity(nr: u32) -> bool {
    IdentityChange::NUMBERS.iter().any(|&number| number as u32 == nr)
}
