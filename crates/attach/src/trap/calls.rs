//! Which calls are trapped.

use uringlet_sys::Sysno;
use uringlet_sys::linux::general::{MAP_ANONYMOUS, MAP_DENYWRITE, MAP_SHARED, PROT_EXEC};
use uringlet_sys::seccomp::{ArgTest, TrapRule, Verdict};

/// The sixth argument of a call that is allowed from everywhere: none of these calls has six, but
/// mmap, which is marked by [`MAP_DENYWRITE`]. The kernel ignores both.
pub(super) const ALLOWED_MARK: u32 = 0x7572_696e;

const UNLESS_MARKED: &[(u32, ArgTest, Verdict)] = &[(5, ArgTest::Equals(ALLOWED_MARK), Verdict::Allow)];

const fn trapped(nr: Sysno, tests: &'static [(u32, ArgTest, Verdict)], otherwise: Verdict) -> TrapRule {
    TrapRule { nr, tests, otherwise }
}

/// Only what a ring needs of code that makes its own system calls: what else a number is closed or
/// replaced by is seen at its file. Not here is what programs do between fork and execve (close,
/// dup2, dup3, fcntl, set*id, rt_sigaction).
pub(super) const RULES: [TrapRule; 9] = [
    trapped(Sysno::io_uring_setup, &[], Verdict::Trap),
    trapped(Sysno::io_uring_enter, &[], Verdict::Trap),
    trapped(Sysno::io_uring_register, &[], Verdict::Trap),
    // A ring's memory, and more code.
    trapped(
        Sysno::mmap,
        &[
            (3, ArgTest::AnyBit(MAP_DENYWRITE), Verdict::Allow),
            (2, ArgTest::AnyBit(PROT_EXEC), Verdict::Trap),
            (3, ArgTest::AnyBit(MAP_ANONYMOUS), Verdict::Allow),
            (3, ArgTest::AnyBit(MAP_SHARED), Verdict::Trap),
        ],
        Verdict::Allow,
    ),
    trapped(
        Sysno::mprotect,
        &[(5, ArgTest::Equals(ALLOWED_MARK), Verdict::Allow), (2, ArgTest::AnyBit(PROT_EXEC), Verdict::Trap)],
        Verdict::Allow,
    ),
    trapped(Sysno::dup, UNLESS_MARKED, Verdict::Trap),
    trapped(Sysno::epoll_ctl, UNLESS_MARKED, Verdict::Trap),
    trapped(Sysno::poll, UNLESS_MARKED, Verdict::Trap),
    trapped(Sysno::ppoll, UNLESS_MARKED, Verdict::Trap),
];

/// The arguments by which a filter allows the call.
pub(super) fn marked(nr: usize, args: [usize; 6]) -> [usize; 6] {
    let [a1, a2, a3, a4, a5, a6] = args;
    if nr == Sysno::mmap as usize {
        return [a1, a2, a3, a4 | MAP_DENYWRITE as usize, a5, a6];
    }
    [a1, a2, a3, a4, a5, ALLOWED_MARK as usize]
}
