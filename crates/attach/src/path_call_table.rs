//! The system calls that take a path and are intercepted in a static program (`path_calls`).

use uringlet_sys::Sysno;
use uringlet_sys::linux::general::{AT_SYMLINK_FOLLOW, AT_SYMLINK_NOFOLLOW, IN_DONT_FOLLOW};

use crate::convert::low_u32;

/// What a call does with its path.
#[derive(Clone, Copy)]
pub(crate) enum PathUse {
    /// Opens it. The flags are behind the path.
    Open,
    /// The same; behind the path is a `struct open_how`.
    OpenHow,
    /// Reads the link. Buffer and size are behind the path.
    ReadLink,
    /// Asks about the file that the path leads to.
    Ask(Follow),
    /// Changes or links it. No stand-in is changed.
    Change(Follow),
    /// Asks about the path itself.
    Look,
}

/// Whether a call goes on from a symbolic link.
#[derive(Clone, Copy)]
pub(crate) enum Follow {
    Always,
    /// Unless this argument has this flag.
    Unless(usize, u32),
    /// If this argument has this flag.
    If(usize, u32),
}

impl Follow {
    pub(crate) fn is_followed(self, args: [usize; 6]) -> bool {
        match self {
            Self::Always => true,
            Self::Unless(argument, flag) => low_u32(args[argument]) & flag == 0,
            Self::If(argument, flag) => low_u32(args[argument]) & flag != 0,
        }
    }
}

/// A system call that takes a path.
pub(crate) struct PathCall {
    pub(crate) nr: Sysno,
    /// Which argument it is.
    pub(crate) at: usize,
    pub(crate) path_use: PathUse,
}

const fn row(nr: Sysno, at: usize, path_use: PathUse) -> PathCall {
    PathCall { nr, at, path_use }
}

const fn asks(nr: Sysno, at: usize, follow: Follow) -> PathCall {
    row(nr, at, PathUse::Ask(follow))
}

const fn changes(nr: Sysno, at: usize, follow: Follow) -> PathCall {
    row(nr, at, PathUse::Change(follow))
}

const fn unless(argument: usize) -> Follow {
    Follow::Unless(argument, AT_SYMLINK_NOFOLLOW)
}

/// Not here is truncate(2): of the loader's file the kernel says ETXTBSY, as it would of the
/// program's, which it does not know to be running.
pub(crate) const PATH_CALLS: [PathCall; 28] = [
    row(Sysno::open, 0, PathUse::Open),
    row(Sysno::openat, 1, PathUse::Open),
    row(Sysno::openat2, 1, PathUse::OpenHow),
    row(Sysno::readlink, 0, PathUse::ReadLink),
    row(Sysno::readlinkat, 1, PathUse::ReadLink),
    row(Sysno::lstat, 0, PathUse::Look),
    asks(Sysno::stat, 0, Follow::Always),
    asks(Sysno::newfstatat, 1, unless(3)),
    asks(Sysno::statx, 1, unless(2)),
    asks(Sysno::access, 0, Follow::Always),
    asks(Sysno::faccessat, 1, Follow::Always),
    asks(Sysno::faccessat2, 1, unless(3)),
    asks(Sysno::statfs, 0, Follow::Always),
    asks(Sysno::getxattr, 0, Follow::Always),
    asks(Sysno::listxattr, 0, Follow::Always),
    changes(Sysno::inotify_add_watch, 1, Follow::Unless(2, IN_DONT_FOLLOW)),
    changes(Sysno::linkat, 1, Follow::If(4, AT_SYMLINK_FOLLOW)),
    changes(Sysno::chmod, 0, Follow::Always),
    changes(Sysno::fchmodat, 1, Follow::Always),
    changes(Sysno::fchmodat2, 1, unless(3)),
    changes(Sysno::chown, 0, Follow::Always),
    changes(Sysno::fchownat, 1, unless(4)),
    changes(Sysno::utime, 0, Follow::Always),
    changes(Sysno::utimes, 0, Follow::Always),
    changes(Sysno::futimesat, 1, Follow::Always),
    changes(Sysno::utimensat, 1, unless(3)),
    changes(Sysno::setxattr, 0, Follow::Always),
    changes(Sysno::removexattr, 0, Follow::Always),
];
