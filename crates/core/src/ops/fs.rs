//! `IORING_OP_OPENAT, OPENAT2, CLOSE, STATX, UNLINKAT, RENAMEAT, MKDIRAT, SYMLINKAT, LINKAT,
//! EPOLL_CTL`: names and descriptors.
//! Source:  io_uring_enter(2), openat2(2), statx(2) and the others; behaviour of Linux 6.18 (not
//!          its code).
//! Issue:   opens of cached names inline; opens that create or truncate on a worker; EPOLL_CTL
//!          inline; the others inline if the submission is shallow, else on a worker. Units: mode
//!          and AT_* as in the system calls.
//! Errors:  EINVAL bad fields; EBADF IOSQE_FIXED_FILE, CLOSE of a ring; EFAULT, ENOENT,
//!          ENAMETOOLONG path; else the system call's.
//! Differs: the unreadable, empty or overlong path of an unlinked request is reported when it is
//!          issued, not when it is submitted: later SQEs of the same call are still consumed. A
//!          cancelled open returns EINTR, where the kernel returns its internal ERESTARTSYS (512).
//! Tests:   liburing openat2.t, open-close.t, statx.t, unlink.t, rename.t, mkdir.t, symlink.t,
//!          hardlink.t; ours cli/tests/fs_ops.rs.

mod open;
mod path;
mod xattr;

use super::issue::{FastProgress, Issue, IssueCx, OpFamily, PrepCx, unused};
use super::outcome::Outcome;
use crate::intercepted::{self, RawEpollEvent};
use crate::ring_resources::RingResources;
pub(crate) use open::install_file;
use path::{UserPath, refuse_fixed};
use uringlet_abi::Sqe;
use uringlet_sys::{Errno, UserPtr, io, user};

/// A path and the directory it is relative to.
#[derive(Debug)]
pub(crate) struct At {
    dir: i32,
    path: UserPath,
}

/// A validated request of this family.
#[derive(Debug)]
pub(crate) enum FsOp {
    Open(open::Open),
    Close(open::Close),
    Statx { at: At, flags: u32, mask: u32, buf: UserPtr },
    Unlinkat { at: At, flags: u32 },
    Renameat { from: At, to: At, flags: u32 },
    Mkdirat { at: At, mode: u32 },
    Symlinkat { target: UserPath, at: At },
    Linkat { from: At, to: At, flags: u32 },
    EpollCtl { epfd: i32, op: u32, fd: i32, event: RawEpollEvent },
    Xattr(xattr::Xattr),
}

/// The checks that all operations on names share.
fn check(sqe: &Sqe, cx: &PrepCx, unused_fields: &[u64]) -> Result<(), Errno> {
    unused(&[u64::from(sqe.buf_index), u64::from(sqe.file_index())])?;
    unused(unused_fields)?;
    refuse_fixed(cx)
}

/// Forwards the `prep` of an opcode to the module of its operation.
macro_rules! forward {
    ($($name:ident = $module:ident => $variant:ident;)*) => {
        $(#[inline]
        pub(crate) fn $name(sqe: &Sqe, cx: &PrepCx) -> Result<FsOp, Errno> {
            $module::$name(sqe, cx).map(FsOp::$variant)
        })*
    };
}

forward! {
    prep_openat = open => Open;
    prep_openat2 = open => Open;
    prep_close = open => Close;
    prep_setxattr = xattr => Xattr;
    prep_getxattr = xattr => Xattr;
    prep_fsetxattr = xattr => Xattr;
    prep_fgetxattr = xattr => Xattr;
}

#[inline]
pub(crate) fn prep_statx(sqe: &Sqe, cx: &PrepCx) -> Result<FsOp, Errno> {
    check(sqe, cx, &[])?;
    let at = At { dir: sqe.fd, path: UserPath::prep(sqe.addr, sqe.op_flags, cx)? };
    Ok(FsOp::Statx { at, flags: sqe.op_flags, mask: sqe.len, buf: UserPtr::at(sqe.addr2()) })
}

#[inline]
pub(crate) fn prep_unlinkat(sqe: &Sqe, cx: &PrepCx) -> Result<FsOp, Errno> {
    const AT_REMOVEDIR: u32 = 0x200;
    check(sqe, cx, &[sqe.off, u64::from(sqe.len)])?;
    unused(&[u64::from(sqe.op_flags & !AT_REMOVEDIR)])?;
    let at = At { dir: sqe.fd, path: UserPath::prep(sqe.addr, 0, cx)? };
    Ok(FsOp::Unlinkat { at, flags: sqe.op_flags })
}

pub(crate) fn prep_renameat(sqe: &Sqe, cx: &PrepCx) -> Result<FsOp, Errno> {
    check(sqe, cx, &[])?;
    let from = At { dir: sqe.fd, path: UserPath::prep(sqe.addr, 0, cx)? };
    let to = At { dir: sqe.len as i32, path: UserPath::prep(sqe.addr2(), 0, cx)? };
    Ok(FsOp::Renameat { from, to, flags: sqe.op_flags })
}

pub(crate) fn prep_mkdirat(sqe: &Sqe, cx: &PrepCx) -> Result<FsOp, Errno> {
    check(sqe, cx, &[sqe.off, u64::from(sqe.op_flags)])?;
    let at = At { dir: sqe.fd, path: UserPath::prep(sqe.addr, 0, cx)? };
    Ok(FsOp::Mkdirat { at, mode: sqe.len })
}

pub(crate) fn prep_symlinkat(sqe: &Sqe, cx: &PrepCx) -> Result<FsOp, Errno> {
    check(sqe, cx, &[u64::from(sqe.len), u64::from(sqe.op_flags)])?;
    let target = UserPath::prep(sqe.addr, 0, cx)?;
    let at = At { dir: sqe.fd, path: UserPath::prep(sqe.addr2(), 0, cx)? };
    Ok(FsOp::Symlinkat { target, at })
}

pub(crate) fn prep_linkat(sqe: &Sqe, cx: &PrepCx) -> Result<FsOp, Errno> {
    check(sqe, cx, &[])?;
    let from = At { dir: sqe.fd, path: UserPath::prep(sqe.addr, sqe.op_flags, cx)? };
    let to = At { dir: sqe.len as i32, path: UserPath::prep(sqe.addr2(), 0, cx)? };
    Ok(FsOp::Linkat { from, to, flags: sqe.op_flags })
}

pub(crate) fn prep_epoll_ctl(sqe: &Sqe, _: &PrepCx) -> Result<FsOp, Errno> {
    const EPOLL_CTL_DEL: u32 = 2;
    unused(&[u64::from(sqe.buf_index), u64::from(sqe.file_index())])?;
    let mut event = RawEpollEvent::default();
    if sqe.len != EPOLL_CTL_DEL {
        user::read_slice(&mut event, UserPtr::at(sqe.addr))?;
    }
    Ok(FsOp::EpollCtl { epfd: sqe.fd, op: sqe.len, fd: sqe.off as i32, event })
}

impl FsOp {
    /// Opens what needs no I/O, under the ring's lock.
    #[inline(always)]
    pub(crate) fn try_open(&mut self, ring: &mut RingResources) -> Issue {
        match self {
            Self::Open(op) => op.try_issue(ring),
            _ => Issue::Blocks,
        }
    }
}

impl OpFamily for FsOp {
    fn try_issue(&mut self, cx: &mut IssueCx<'_>) -> Issue {
        match self {
            Self::Open(_) => self.try_open(cx.ring),
            Self::Close(op) => op.try_issue(cx.ring),
            _ => Issue::Blocks,
        }
    }

    // The first `ret` after a system call is slow: see `submit/fast_path.rs`.
    #[inline(always)]
    fn run(&mut self, file: i32) -> Outcome {
        let res = match self {
            Self::Open(op) => return op.run(),
            Self::Close(op) => return op.run(),
            Self::Statx { at, flags, mask, buf } => io::statx(at.dir, at.path.ptr(), *flags, *mask, *buf),
            Self::Unlinkat { at, flags } => io::unlinkat(at.dir, at.path.ptr(), *flags),
            Self::Renameat { from, to, flags } => io::renameat2(from.dir, from.path.ptr(), to.dir, to.path.ptr(), *flags),
            Self::Mkdirat { at, mode } => io::mkdirat(at.dir, at.path.ptr(), *mode),
            Self::Symlinkat { target, at } => io::symlinkat(target.ptr(), at.dir, at.path.ptr()),
            Self::Linkat { from, to, flags } => io::linkat(from.dir, from.path.ptr(), to.dir, to.path.ptr(), *flags),
            Self::EpollCtl { epfd, op, fd, event } => return intercepted::epoll_ctl(*epfd, *op, *fd, event).into(),
            Self::Xattr(op) => return op.run(file),
        };
        Outcome::result_ok(res)
    }

    fn resume(&mut self, progress: FastProgress) {
        if let (Self::Open(op), FastProgress::WouldBlock) = (self, progress) {
            op.needs_io = true;
        }
    }

    fn import_args(&mut self) -> Result<(), Errno> {
        match self {
            Self::Open(op) => op.path.import_args(),
            Self::Statx { at, .. } | Self::Unlinkat { at, .. } | Self::Mkdirat { at, .. } => at.path.import_args(),
            Self::Renameat { from, to, .. } | Self::Linkat { from, to, .. } => from.path.import_args().and_then(|()| to.path.import_args()),
            Self::Symlinkat { target, at } => target.import_args().and_then(|()| at.path.import_args()),
            Self::Xattr(op) => op.import_args(),
            Self::Close(_) | Self::EpollCtl { .. } => Ok(()),
        }
    }

    /// Runs under the ring's lock after [`run`](Self::run). Maps `run`'s outcome to the CQE result.
    fn finish(&mut self, ring: &mut RingResources, outcome: Outcome) -> Outcome {
        match self {
            Self::Open(op) => op.finish(ring, outcome),
            Self::Close(op) => op.finish(ring, outcome),
            _ => outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::issue::Prep;
    use uringlet_abi::sqe;

    const CX: PrepCx = PrepCx { setup: 0, sqe_flags: 0, is_after_link: false, is_wide: false };
    const FIXED: PrepCx = PrepCx { sqe_flags: sqe::FIXED_FILE, ..CX };

    fn named() -> Sqe {
        let name = io::ptr_of_slice(b"name\0").addr() as u64;
        Sqe { addr: name, fd: -100, ..Sqe::default() }
    }

    /// Each takes one name; `true`: a second one in addr2.
    const ALL: [(Prep<FsOp>, bool); 6] = [
        (prep_statx, true),
        (prep_unlinkat, false),
        (prep_renameat, true),
        (prep_mkdirat, false),
        (prep_symlinkat, true),
        (prep_linkat, true),
    ];

    fn good(takes_addr2: bool) -> Sqe {
        Sqe { off: if takes_addr2 { named().addr } else { 0 }, ..named() }
    }

    #[test]
    fn name_operations_refuse_buffers_slots_and_registered_files() {
        for (prep, takes_addr2) in ALL {
            let sqe = good(takes_addr2);
            assert!(prep(&sqe, &CX).is_ok());
            assert!(prep(&Sqe { addr3: 1, pad2: 1, ..sqe }, &CX).is_ok());
            assert_eq!(prep(&Sqe { buf_index: 1, ..sqe }, &CX).err(), Some(Errno::EINVAL));
            assert_eq!(prep(&Sqe { splice_fd_in: 1, ..sqe }, &CX).err(), Some(Errno::EINVAL));
            assert_eq!(prep(&sqe, &FIXED).err(), Some(Errno::EBADF));
            assert_eq!(prep(&Sqe { addr: 0, ..sqe }, &CX).err(), Some(Errno::EFAULT));
        }
    }

    #[test]
    fn name_operations_check_their_own_fields() {
        let takes = |change: fn(&mut Sqe)| {
            ALL.map(|(prep, takes_addr2)| {
                let mut sqe = good(takes_addr2);
                change(&mut sqe);
                prep(&sqe, &CX).is_ok()
            })
        };
        //                                       statx  unlink rename mkdir  symlnk link
        assert_eq!(takes(|s| s.len = 1), [true, false, true, true, false, true]);
        assert_eq!(takes(|s| s.op_flags = 1), [true, false, true, false, false, true]);
        assert_eq!(takes(|s| s.op_flags = 0x200), [true, true, true, false, false, true]);
        assert_eq!(takes(|s| s.off = 0), [true, true, false, true, false, false]);
        assert_eq!(takes(|s| s.off = s.addr), [true, false, true, false, true, true]);
    }

    #[test]
    fn epoll_events_are_copied_by_prep() {
        let mut event: RawEpollEvent = [1, 2, 3];
        let sqe = Sqe { addr: io::ptr_of_slice(&event).addr() as u64, len: 1, fd: 5, off: 6, ..Sqe::default() };
        let op = prep_epoll_ctl(&sqe, &FIXED).unwrap();
        event.fill(0);
        assert!(matches!(op, FsOp::EpollCtl { epfd: 5, op: 1, fd: 6, event: [1, 2, 3] }));
        assert_eq!(prep_epoll_ctl(&Sqe { addr: 0, ..sqe }, &CX).err(), Some(Errno::EFAULT));
        assert!(prep_epoll_ctl(&Sqe { addr: 0, len: 2, ..sqe }, &CX).is_ok());
        assert_eq!(prep_epoll_ctl(&Sqe { splice_fd_in: 1, ..sqe }, &CX).err(), Some(Errno::EINVAL));
    }
}
