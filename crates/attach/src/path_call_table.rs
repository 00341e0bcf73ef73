//! The system calls that take a path and are intercepted in a static program (`path_calls`).

use uringlet_sys::Sysno;

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
    Follow,
    /// The same, unless this argument has `AT_SYMLINK_NOFOLLOW`.
    FollowUnless(usize),
    /// Asks about the path itself.
    Look,
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

pub(crate) const PATH_CALLS: [PathCall; 15] = [
    row(Sysno::open, 0, PathUse::Open),
    row(Sysno::openat, 1, PathUse::Open),
    row(Sysno::openat2, 1, PathUse::OpenHow),
    row(Sysno::readlink, 0, PathUse::ReadLink),
    row(Sysno::readlinkat, 1, PathUse::ReadLink),
    row(Sysno::stat, 0, PathUse::Follow),
    row(Sysno::lstat, 0, PathUse::Look),
    row(Sysno::newfstatat, 1, PathUse::FollowUnless(3)),
    row(Sysno::statx, 1, PathUse::FollowUnless(2)),
    row(Sysno::access, 0, PathUse::Follow),
    row(Sysno::faccessat, 1, PathUse::Follow),
    row(Sysno::faccessat2, 1, PathUse::FollowUnless(3)),
    row(Sysno::statfs, 0, PathUse::Follow),
    row(Sysno::getxattr, 0, PathUse::Follow),
    row(Sysno::listxattr, 0, PathUse::Follow),
];
