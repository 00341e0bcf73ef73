//! Which system calls the engine looks at.

use uringlet::IdentityChange;
use uringlet_sys::Sysno;

/// The numbers of the intercepted calls that may concern a ring or its files. With
/// [`IdentityChange::NUMBERS`] they are all.
const NUMBERS: [Sysno; 19] = [
    Sysno::io_uring_setup,
    Sysno::io_uring_enter,
    Sysno::io_uring_register,
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
pub(crate) static INTERCEPTED: [u8; 1 << 16] = {
    let mut table = [0; 1 << 16];
    let lists: [&[Sysno]; 2] = [&NUMBERS, &IdentityChange::NUMBERS];
    let mut list = 0;
    while list < lists.len() {
        let mut i = 0;
        while i < lists[list].len() {
            table[lists[list][i] as usize] = 1;
            i += 1;
        }
        list += 1;
    }
    table
};

/// Whether a call with this number is intercepted.
pub(crate) fn is_intercepted(nr: u32) -> bool {
    INTERCEPTED.get(nr as usize) == Some(&1)
}

/// Whether a call with this number may change an identity.
pub(crate) fn may_change_identity(nr: u32) -> bool {
    IdentityChange::NUMBERS.iter().any(|&number| number as u32 == nr)
}
