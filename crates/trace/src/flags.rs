//! Flags by name.

use uringlet_abi::{cqe, enter, op_flags, setup, sqe};
use uringlet_sys::linux::general as linux;
use uringlet_sys::linux::net;
use uringlet_sys::trace::road;

/// Names of bits.
type Table = &'static [(u64, &'static str)];

/// A table of constants of one module, which all have the same beginning in C.
macro_rules! table {
    ($(#[$doc:meta])* $name:ident: $module:path, $prefix:literal: $($flag:ident)*) => {
        $(#[$doc])*
        pub(crate) const $name: Table = {
            use $module as m;
            &[$((m::$flag as u64, concat!($prefix, stringify!($flag)))),*]
        };
    };
}

table! { SQE: sqe, "IOSQE_": FIXED_FILE IO_DRAIN IO_LINK IO_HARDLINK ASYNC BUFFER_SELECT CQE_SKIP_SUCCESS }
table! { CQE: cqe, "IORING_CQE_F_": BUFFER MORE SOCK_NONEMPTY NOTIF BUF_MORE BIG }
table! { ENTER: enter, "IORING_ENTER_":
GETEVENTS SQ_WAKEUP SQ_WAIT EXT_ARG REGISTERED_RING ABS_TIMER EXT_ARG_REG NO_IOWAIT }
table! { SETUP: setup, "IORING_SETUP_":
IOPOLL SQPOLL SQ_AFF CQSIZE CLAMP ATTACH_WQ R_DISABLED SUBMIT_ALL COOP_TASKRUN TASKRUN_FLAG SQE128 CQE32 SINGLE_ISSUER DEFER_TASKRUN
NO_MMAP REGISTERED_FD_ONLY NO_SQARRAY HYBRID_IOPOLL CQE_MIXED SQE_MIXED SQ_REWIND URINGLET }
table! { FSYNC: op_flags, "IORING_": FSYNC_DATASYNC }
table! { TIMEOUT: op_flags, "IORING_":
TIMEOUT_ABS TIMEOUT_UPDATE TIMEOUT_BOOTTIME TIMEOUT_REALTIME LINK_TIMEOUT_UPDATE TIMEOUT_ETIME_SUCCESS TIMEOUT_MULTISHOT
TIMEOUT_IMMEDIATE_ARG }
table! { POLL: op_flags, "IORING_": POLL_ADD_MULTI POLL_UPDATE_EVENTS POLL_UPDATE_USER_DATA POLL_ADD_LEVEL }
table! { CANCEL: op_flags, "IORING_ASYNC_": CANCEL_ALL CANCEL_FD CANCEL_ANY CANCEL_FD_FIXED CANCEL_USERDATA CANCEL_OP }
table! { RECV: op_flags, "IORING_": RECVSEND_POLL_FIRST RECV_MULTISHOT RECVSEND_FIXED_BUF RECVSEND_BUNDLE }
table! { SEND: op_flags, "IORING_":
RECVSEND_POLL_FIRST RECVSEND_FIXED_BUF SEND_ZC_REPORT_USAGE RECVSEND_BUNDLE SEND_VECTORIZED }
table! { ACCEPT: op_flags, "IORING_": ACCEPT_MULTISHOT ACCEPT_DONTWAIT ACCEPT_POLL_FIRST }
table! { NOP: op_flags, "IORING_": NOP_INJECT_RESULT NOP_FILE NOP_FIXED_FILE NOP_FIXED_BUFFER NOP_TW NOP_CQE32 }
table! { RWF: linux, "": RWF_HIPRI RWF_DSYNC RWF_SYNC RWF_NOWAIT RWF_APPEND }
table! { OPEN: linux, "":
O_WRONLY O_RDWR O_CREAT O_EXCL O_NOCTTY O_TRUNC O_APPEND O_NONBLOCK O_SYNC O_DSYNC O_DIRECT O_DIRECTORY O_NOFOLLOW O_NOATIME
O_CLOEXEC O_PATH O_TMPFILE }
table! { RESOLVE: linux, "": RESOLVE_NO_XDEV RESOLVE_NO_MAGICLINKS RESOLVE_NO_SYMLINKS RESOLVE_BENEATH RESOLVE_IN_ROOT RESOLVE_CACHED }
table! { AT: linux, "":
AT_SYMLINK_NOFOLLOW AT_REMOVEDIR AT_SYMLINK_FOLLOW AT_NO_AUTOMOUNT AT_EMPTY_PATH AT_STATX_FORCE_SYNC AT_STATX_DONT_SYNC }
table! { UNLINK: linux, "": AT_REMOVEDIR }
table! { STATX: linux, "":
STATX_BASIC_STATS STATX_TYPE STATX_MODE STATX_NLINK STATX_UID STATX_GID STATX_ATIME STATX_MTIME STATX_CTIME STATX_INO STATX_SIZE
STATX_BLOCKS STATX_BTIME STATX_MNT_ID }
table! { RENAME: linux, "": RENAME_NOREPLACE RENAME_EXCHANGE RENAME_WHITEOUT }
table! { FALLOCATE: linux, "":
FALLOC_FL_KEEP_SIZE FALLOC_FL_PUNCH_HOLE FALLOC_FL_COLLAPSE_RANGE FALLOC_FL_ZERO_RANGE FALLOC_FL_INSERT_RANGE FALLOC_FL_UNSHARE_RANGE }
table! { SYNC_RANGE: linux, "": SYNC_FILE_RANGE_WAIT_BEFORE SYNC_FILE_RANGE_WRITE SYNC_FILE_RANGE_WAIT_AFTER }
table! { SPLICE: linux, "": SPLICE_F_MOVE SPLICE_F_NONBLOCK SPLICE_F_MORE SPLICE_F_GIFT }
table! { XATTR: linux, "": XATTR_CREATE XATTR_REPLACE }
table! { WAIT: linux, "": WNOHANG WSTOPPED WEXITED WCONTINUED WNOWAIT }

/// `POLL*`, whose constants differ between processors for rare ones only.
pub(crate) const EVENTS: Table = &[
    (1, "POLLIN"),
    (2, "POLLPRI"),
    (4, "POLLOUT"),
    (8, "POLLERR"),
    (0x10, "POLLHUP"),
    (0x20, "POLLNVAL"),
    (0x40, "POLLRDNORM"),
    (0x80, "POLLRDBAND"),
    (0x100, "POLLWRNORM"),
    (0x200, "POLLWRBAND"),
    (0x400, "POLLMSG"),
    (0x2000, "POLLRDHUP"),
    (1 << 28, "EPOLLEXCLUSIVE"),
    (1 << 29, "EPOLLWAKEUP"),
    (1 << 30, "EPOLLONESHOT"),
    (1 << 31, "EPOLLET"),
];
pub(crate) const MSG: Table = &[
    (0x1, "MSG_OOB"),
    (0x2, "MSG_PEEK"),
    (0x4, "MSG_DONTROUTE"),
    (0x8, "MSG_CTRUNC"),
    (0x20, "MSG_TRUNC"),
    (0x40, "MSG_DONTWAIT"),
    (0x80, "MSG_EOR"),
    (0x100, "MSG_WAITALL"),
    (0x800, "MSG_CONFIRM"),
    (0x2000, "MSG_ERRQUEUE"),
    (0x4000, "MSG_NOSIGNAL"),
    (0x8000, "MSG_MORE"),
    (0x0400_0000, "MSG_ZEROCOPY"),
    (0x2000_0000, "MSG_FASTOPEN"),
    (0x4000_0000, "MSG_CMSG_CLOEXEC"),
];
pub(crate) const SOCK: Table = &[(0x800, "SOCK_NONBLOCK"), (0x8_0000, "SOCK_CLOEXEC")];
/// `FUTEX2_*`
pub(crate) const FUTEX: Table = &[(2, "FUTEX2_SIZE_U32"), (4, "FUTEX2_NUMA"), (8, "FUTEX2_MPOL"), (128, "FUTEX2_PRIVATE")];
/// `IORING_MSG_RING_*`
pub(crate) const MSG_RING: Table = &[(1, "IORING_MSG_RING_CQE_SKIP"), (2, "IORING_MSG_RING_FLAGS_PASS")];
/// `IORING_FIXED_FD_*`
pub(crate) const FIXED_FD: Table = &[(1, "IORING_FIXED_FD_NO_CLOEXEC")];
/// `IORING_URING_CMD_*`
pub(crate) const URING_CMD: Table = &[(1, "IORING_URING_CMD_FIXED"), (2, "IORING_URING_CMD_MULTISHOT")];
/// The ways of a request.
pub(crate) const ROAD: Table = &[
    (road::FAST_PATH as u64, "fast path"),
    (road::POLL as u64, "poll"),
    (road::IO_WQ as u64, "io-wq"),
    (road::AIO as u64, "AIO"),
    (road::URINGLET as u64, "uringlet"),
    (road::TIMER as u64, "timer"),
    (road::COMMAND as u64, "command"),
];

/// The names of the bits of `value`, in the table's order, and the rest in hexadecimal, joined by
/// `between`; `none` for 0.
fn joined(value: u64, table: Table, between: &str, none: &str) -> String {
    let mut rest = value;
    let mut names = Vec::new();
    for &(bits, name) in table {
        // A flag of several bits, where all are set, comes before its parts.
        if bits != 0 && rest & bits == bits {
            rest &= !bits;
            names.push(name.to_owned());
        }
    }
    if rest != 0 {
        names.push(format!("{rest:#x}"));
    }
    if names.is_empty() { none.to_owned() } else { names.join(between) }
}

/// The names of the bits, `0` for none.
pub(crate) fn names(value: impl Into<u64>, table: Table) -> String {
    joined(value.into(), table, "|", "0")
}

/// `O_*`: the access mode first.
pub(crate) fn open(flags: u64) -> String {
    let is_read_only = flags & u64::from(linux::O_ACCMODE) == 0;
    let has_mode = flags & u64::from(linux::O_PATH) == 0;
    match (is_read_only && has_mode, flags) {
        (true, 0) => "O_RDONLY".to_owned(),
        (true, flags) => format!("O_RDONLY|{}", names(flags, OPEN)),
        (false, flags) => names(flags, OPEN),
    }
}

/// How a request was executed.
pub(crate) fn road(bits: u8) -> String {
    joined((bits & !road::INJECTED).into(), ROAD, "+", "inline")
}

/// The value of a table of names, not of bits.
pub(crate) fn one(value: u64, table: Table) -> String {
    table.iter().find(|(known, _)| *known == value).map_or_else(|| value.to_string(), |(_, name)| (*name).to_owned())
}

table! { DOMAIN: net, "": AF_UNSPEC AF_UNIX AF_INET AF_INET6 AF_NETLINK AF_PACKET AF_VSOCK }
/// `SOCK_*` types.
pub(crate) const SOCKET_TYPE: Table = &[(1, "SOCK_STREAM"), (2, "SOCK_DGRAM"), (3, "SOCK_RAW"), (4, "SOCK_RDM"), (5, "SOCK_SEQPACKET")];
/// `SHUT_*`
pub(crate) const SHUTDOWN: Table = &[(0, "SHUT_RD"), (1, "SHUT_WR"), (2, "SHUT_RDWR")];
table! { EPOLL_CTL: linux, "": EPOLL_CTL_ADD EPOLL_CTL_DEL EPOLL_CTL_MOD }
table! { FADVISE: linux, "":
POSIX_FADV_NORMAL POSIX_FADV_RANDOM POSIX_FADV_SEQUENTIAL POSIX_FADV_WILLNEED POSIX_FADV_DONTNEED POSIX_FADV_NOREUSE }
table! { MADVISE: linux, "":
MADV_NORMAL MADV_RANDOM MADV_SEQUENTIAL MADV_WILLNEED MADV_DONTNEED MADV_FREE MADV_REMOVE MADV_DONTFORK MADV_DOFORK MADV_HUGEPAGE
MADV_NOHUGEPAGE MADV_COLD MADV_PAGEOUT MADV_POPULATE_READ MADV_POPULATE_WRITE MADV_COLLAPSE }
table! { ID_TYPE: linux, "": P_ALL P_PID P_PGID P_PIDFD }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_have_names_and_the_rest_a_number() {
        assert_eq!(names(sqe::IO_LINK | sqe::ASYNC | 0x80, SQE), "IOSQE_IO_LINK|IOSQE_ASYNC|0x80");
        assert_eq!((names(0_u8, SQE), road(0), road(6)), ("0".into(), "inline".into(), "poll+io-wq".into()));
        assert_eq!(one(9, SHUTDOWN), "9");
    }

    #[test]
    fn the_access_mode_comes_first() {
        assert_eq!(open(0), "O_RDONLY");
        assert_eq!(open(0o100 | 0o1), "O_WRONLY|O_CREAT");
        assert_eq!(open(0o2_000_000), "O_RDONLY|O_CLOEXEC");
    }
}
