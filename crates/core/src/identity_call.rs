//! Which system calls change what a thread acts as, and for whom. Pure: the skins ask before they
//! pass a call on, and tell the engine around it.
//!
//! chdir, fchdir, chroot and umask are not here: the engine's threads share these with the thread
//! that started them, unless an unshare(2) parts them, which is here.

use uringlet_sys::Sysno;
use uringlet_sys::linux::general::{CLONE_FILES, CLONE_NEWNS, CLONE_NEWTIME, CLONE_NEWUSER, CLONE_SIGHAND, CLONE_THREAD, CLONE_VM};
use uringlet_sys::linux::prctl::{PR_CAP_AMBIENT, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, PR_SET_SECUREBITS};

use crate::identity::IdentityScope;

/// seccomp(2): a program as filter, and for all threads.
const SECCOMP_SET_MODE_FILTER: u32 = 1;
const SECCOMP_FILTER_FLAG_TSYNC: u32 = 1;
/// The same in prctl(2).
const SECCOMP_MODE_FILTER: u32 = 2;
/// landlock_restrict_self(2): for all threads; from ABI 8 on.
const LANDLOCK_RESTRICT_SELF_TSYNC: u32 = 8;
/// keyctl(2), what changes the caller's own keyrings.
const KEYCTL_GET_KEYRING_ID: u32 = 0;
const KEYCTL_JOIN_SESSION_KEYRING: u32 = 1;
const KEYCTL_SET_REQKEY_KEYRING: u32 = 14;
const KEYCTL_ASSUME_AUTHORITY: u32 = 16;
/// close_range(2)
const CLOSE_RANGE_UNSHARE: u32 = 2;

/// What a system call changes if it succeeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdentityChange {
    /// Whose.
    pub scope: IdentityScope,
    /// The calling thread gets a descriptor table of its own.
    pub unshares_files: bool,
    /// The kernel refuses it to a process of several threads.
    pub wants_lone_thread: bool,
    /// It forbids system calls, and changes neither user nor group.
    pub is_filter: bool,
    /// Its result is no error, whatever it is.
    never_fails: bool,
}

const OF_THREAD: IdentityChange =
    IdentityChange { scope: IdentityScope::Thread, unshares_files: false, wants_lone_thread: false, is_filter: false, never_fails: false };

/// The `unsigned int` in a register.
fn low(register: usize) -> u32 {
    (register & 0xffff_ffff) as u32
}

impl IdentityChange {
    /// All calls that [`of`](Self::of) may answer about.
    pub const NUMBERS: [Sysno; 17] = [
        Sysno::setuid,
        Sysno::setgid,
        Sysno::setreuid,
        Sysno::setregid,
        Sysno::setresuid,
        Sysno::setresgid,
        Sysno::setgroups,
        Sysno::setfsuid,
        Sysno::setfsgid,
        Sysno::capset,
        Sysno::prctl,
        Sysno::seccomp,
        Sysno::landlock_restrict_self,
        Sysno::unshare,
        Sysno::setns,
        Sysno::keyctl,
        Sysno::close_range,
    ];

    /// What this call changes; `None`: nothing that a request acts with.
    #[must_use]
    pub fn of(nr: Sysno, args: [usize; 3]) -> Option<Self> {
        let [first, second, third] = args.map(low);
        match nr {
            Sysno::setuid | Sysno::setgid | Sysno::setreuid | Sysno::setregid => Some(OF_THREAD),
            Sysno::setresuid | Sysno::setresgid | Sysno::setgroups | Sysno::capset => Some(OF_THREAD),
            // An id of -1 only asks.
            Sysno::setfsuid | Sysno::setfsgid => (first != u32::MAX).then_some(Self { never_fails: true, ..OF_THREAD }),
            Sysno::prctl => Self::of_prctl(first, second),
            Sysno::seccomp if first == SECCOMP_SET_MODE_FILTER => Some(Self::sandbox(second & SECCOMP_FILTER_FLAG_TSYNC != 0)),
            Sysno::landlock_restrict_self => Some(Self::sandbox(second & LANDLOCK_RESTRICT_SELF_TSYNC != 0)),
            Sysno::unshare => Self::of_unshare(first),
            Sysno::setns => Some(Self::of_setns(second)),
            Sysno::keyctl => Self::of_keyctl(first),
            Sysno::close_range => (third & CLOSE_RANGE_UNSHARE != 0).then_some(Self { unshares_files: true, ..OF_THREAD }),
            _ => None,
        }
    }

    /// The same for all threads: libc's set*id and setgroups do so.
    #[must_use]
    pub const fn in_all_threads(self) -> Self {
        Self { scope: IdentityScope::Process, ..self }
    }

    /// Whether the call with this result has changed something. `result` is negative if it failed.
    #[must_use]
    pub const fn has_happened(self, result: isize) -> bool {
        result >= 0 || self.never_fails
    }

    fn sandbox(of_all_threads: bool) -> Self {
        let scope = if of_all_threads { IdentityScope::Process } else { IdentityScope::Thread };
        Self { scope, is_filter: true, ..OF_THREAD }
    }

    /// Strict mode is left out: nothing may follow it but read, write and exit, so the thread can
    /// hand no request to another one.
    fn of_prctl(option: u32, mode: u32) -> Option<Self> {
        match option {
            PR_SET_NO_NEW_PRIVS | PR_CAPBSET_DROP | PR_CAP_AMBIENT | PR_SET_SECUREBITS => Some(OF_THREAD),
            PR_SET_SECCOMP if mode == SECCOMP_MODE_FILTER => Some(Self::sandbox(false)),
            _ => None,
        }
    }

    fn of_unshare(flags: u32) -> Option<Self> {
        // A new user namespace is for a process of one thread.
        const LONE: u32 = CLONE_NEWUSER | CLONE_THREAD | CLONE_SIGHAND | CLONE_VM;
        let of_flags = Self { unshares_files: flags & CLONE_FILES != 0, wants_lone_thread: flags & LONE != 0, ..OF_THREAD };
        (flags != 0).then_some(of_flags)
    }

    /// No flag: the descriptor decides which namespaces.
    fn of_setns(flags: u32) -> Self {
        const LONE: u32 = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWTIME;
        Self { wants_lone_thread: flags == 0 || flags & LONE != 0, ..OF_THREAD }
    }

    fn of_keyctl(operation: u32) -> Option<Self> {
        const KEYRINGS: [u32; 4] = [KEYCTL_GET_KEYRING_ID, KEYCTL_JOIN_SESSION_KEYRING, KEYCTL_SET_REQKEY_KEYRING, KEYCTL_ASSUME_AUTHORITY];
        KEYRINGS.contains(&operation).then_some(OF_THREAD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(nr: Sysno, args: [usize; 3]) -> Option<IdentityChange> {
        IdentityChange::of(nr, args)
    }

    #[test]
    fn calls_that_only_ask_change_nothing() {
        const PR_SET_NAME: usize = 15;
        const SECCOMP_GET_ACTION_AVAIL: usize = 2;
        let asks = [
            (Sysno::setfsuid, [usize::MAX, 0, 0]),
            (Sysno::prctl, [PR_SET_NAME, 0x1000, 0]),
            (Sysno::seccomp, [SECCOMP_GET_ACTION_AVAIL, 0, 0x1000]),
            (Sysno::unshare, [0; 3]),
            (Sysno::close_range, [3, 9, 0]),
            (Sysno::chdir, [0x1000, 0, 0]),
        ];
        for (nr, args) in asks {
            assert_eq!(change(nr, args), None, "{nr:?} {args:x?}");
        }
    }

    #[test]
    fn every_number_of_the_list_is_answered_about() {
        let args = |nr| match nr {
            Sysno::prctl => [PR_SET_NO_NEW_PRIVS as usize, 1, 0],
            Sysno::close_range => [0, 0, CLOSE_RANGE_UNSHARE as usize],
            _ => [1; 3],
        };
        for nr in IdentityChange::NUMBERS {
            assert!(change(nr, args(nr)).is_some(), "{nr:?}");
        }
    }

    #[test]
    fn only_synchronized_sandboxes_are_those_of_all_threads() {
        let scope = |nr, args| change(nr, args).map(|change| change.scope);
        assert_eq!(scope(Sysno::seccomp, [1, 0, 0x1000]), Some(IdentityScope::Thread));
        assert_eq!(scope(Sysno::seccomp, [1, 1, 0x1000]), Some(IdentityScope::Process));
        assert_eq!(scope(Sysno::landlock_restrict_self, [3, 0, 0]), Some(IdentityScope::Thread));
        assert_eq!(scope(Sysno::landlock_restrict_self, [3, 8, 0]), Some(IdentityScope::Process));
        assert_eq!(change(Sysno::setuid, [1, 0, 0]).map(|change| change.in_all_threads().scope), Some(IdentityScope::Process));
    }

    #[test]
    fn a_former_id_is_no_error() {
        let nobody = -2;
        assert!(change(Sysno::setfsuid, [0; 3]).is_some_and(|change| change.has_happened(nobody)));
        assert!(change(Sysno::setuid, [0; 3]).is_some_and(|change| !change.has_happened(-1)));
    }
}
