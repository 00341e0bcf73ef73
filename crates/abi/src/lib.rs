//! The io_uring ABI as data: structures, opcodes and flag bits of `<linux/io_uring.h>` (Linux
//! 6.18). No logic, no unsafe.
//!
//! Constants are named after the C ones, with a module for the prefix: `IORING_SETUP_SQPOLL` is
//! [`setup::SQPOLL`], `IOSQE_IO_LINK` is [`sqe::IO_LINK`], `IORING_CQE_F_MORE` is [`cqe::MORE`].
#![no_std]
#![forbid(unsafe_code)]

pub mod layout;
pub mod opcode;
pub mod register;
mod structs;
pub mod support;
pub mod ublk;

pub use opcode::Opcode;
pub use structs::{CqOffsets, Cqe, GeteventsArg, SqOffsets, Sqe, Timespec, UringParams};

/// `IORING_SETUP_*`: bits of [`UringParams::flags`] for io_uring_setup(2).
#[allow(missing_docs)]
pub mod setup {
    pub const IOPOLL: u32 = 1 << 0;
    pub const SQPOLL: u32 = 1 << 1;
    pub const SQ_AFF: u32 = 1 << 2;
    pub const CQSIZE: u32 = 1 << 3;
    pub const CLAMP: u32 = 1 << 4;
    pub const ATTACH_WQ: u32 = 1 << 5;
    pub const R_DISABLED: u32 = 1 << 6;
    pub const SUBMIT_ALL: u32 = 1 << 7;
    pub const COOP_TASKRUN: u32 = 1 << 8;
    pub const TASKRUN_FLAG: u32 = 1 << 9;
    pub const SQE128: u32 = 1 << 10;
    pub const CQE32: u32 = 1 << 11;
    pub const SINGLE_ISSUER: u32 = 1 << 12;
    pub const DEFER_TASKRUN: u32 = 1 << 13;
    pub const NO_MMAP: u32 = 1 << 14;
    pub const REGISTERED_FD_ONLY: u32 = 1 << 15;
    pub const NO_SQARRAY: u32 = 1 << 16;
    pub const HYBRID_IOPOLL: u32 = 1 << 17;
    pub const CQE_MIXED: u32 = 1 << 18;
    pub const SQE_MIXED: u32 = 1 << 19;
    pub const SQ_REWIND: u32 = 1 << 20;
    /// Not the kernel's, which answers `EINVAL`: the ring's own workers issue the requests that may
    /// block, and hand over to the next worker when they block.
    pub const URINGLET: u32 = 1 << 31;
}

/// `IORING_FEAT_*`: bits of [`UringParams::features`].
#[allow(missing_docs)]
pub mod feat {
    pub const SINGLE_MMAP: u32 = 1 << 0;
    pub const NODROP: u32 = 1 << 1;
    pub const SUBMIT_STABLE: u32 = 1 << 2;
    pub const RW_CUR_POS: u32 = 1 << 3;
    pub const CUR_PERSONALITY: u32 = 1 << 4;
    pub const FAST_POLL: u32 = 1 << 5;
    pub const POLL_32BITS: u32 = 1 << 6;
    pub const SQPOLL_NONFIXED: u32 = 1 << 7;
    pub const EXT_ARG: u32 = 1 << 8;
    pub const NATIVE_WORKERS: u32 = 1 << 9;
    pub const RSRC_TAGS: u32 = 1 << 10;
    pub const CQE_SKIP: u32 = 1 << 11;
    pub const LINKED_FILE: u32 = 1 << 12;
    pub const REG_REG_RING: u32 = 1 << 13;
    pub const RECVSEND_BUNDLE: u32 = 1 << 14;
    pub const MIN_TIMEOUT: u32 = 1 << 15;
    pub const RW_ATTR: u32 = 1 << 16;
    pub const NO_IOWAIT: u32 = 1 << 17;
}

/// `IORING_ENTER_*`: flags of io_uring_enter(2).
#[allow(missing_docs)]
pub mod enter {
    pub const GETEVENTS: u32 = 1 << 0;
    pub const SQ_WAKEUP: u32 = 1 << 1;
    pub const SQ_WAIT: u32 = 1 << 2;
    pub const EXT_ARG: u32 = 1 << 3;
    pub const REGISTERED_RING: u32 = 1 << 4;
    pub const ABS_TIMER: u32 = 1 << 5;
    pub const EXT_ARG_REG: u32 = 1 << 6;
    pub const NO_IOWAIT: u32 = 1 << 7;
}

/// `IORING_SQ_*`: bits of the SQ ring's flags word.
#[allow(missing_docs)]
pub mod sq_flags {
    pub const NEED_WAKEUP: u32 = 1 << 0;
    pub const CQ_OVERFLOW: u32 = 1 << 1;
    pub const TASKRUN: u32 = 1 << 2;
}

/// `IORING_CQ_*`: bits of the CQ ring's flags word (written by the program).
#[allow(missing_docs)]
pub mod cq_flags {
    pub const EVENTFD_DISABLED: u32 = 1 << 0;
}

/// `IOSQE_*`: bits of [`Sqe::flags`].
#[allow(missing_docs)]
pub mod sqe {
    pub const FIXED_FILE: u8 = 1 << 0;
    pub const IO_DRAIN: u8 = 1 << 1;
    pub const IO_LINK: u8 = 1 << 2;
    pub const IO_HARDLINK: u8 = 1 << 3;
    pub const ASYNC: u8 = 1 << 4;
    pub const BUFFER_SELECT: u8 = 1 << 5;
    pub const CQE_SKIP_SUCCESS: u8 = 1 << 6;
}

/// `IORING_CQE_F_*`: bits of [`Cqe::flags`].
#[allow(missing_docs)]
pub mod cqe {
    pub const BUFFER: u32 = 1 << 0;
    pub const MORE: u32 = 1 << 1;
    pub const SOCK_NONEMPTY: u32 = 1 << 2;
    pub const NOTIF: u32 = 1 << 3;
    pub const BUF_MORE: u32 = 1 << 4;
    pub const SKIP: u32 = 1 << 5;
    /// The CQE has 32 bytes, on a ring of both sizes.
    pub const BIG: u32 = 1 << 15;
    /// The buffer id of a provided buffer sits above this bit.
    pub const BUFFER_SHIFT: u32 = 16;
}

/// Flags of single opcodes, each named after the opcode's family.
#[allow(missing_docs)]
pub mod op_flags {
    pub const FSYNC_DATASYNC: u32 = 1 << 0;

    pub const TIMEOUT_ABS: u32 = 1 << 0;
    pub const TIMEOUT_UPDATE: u32 = 1 << 1;
    pub const TIMEOUT_BOOTTIME: u32 = 1 << 2;
    pub const TIMEOUT_REALTIME: u32 = 1 << 3;
    pub const LINK_TIMEOUT_UPDATE: u32 = 1 << 4;
    pub const TIMEOUT_ETIME_SUCCESS: u32 = 1 << 5;
    pub const TIMEOUT_MULTISHOT: u32 = 1 << 6;
    pub const TIMEOUT_IMMEDIATE_ARG: u32 = 1 << 7;
    pub const TIMEOUT_CLOCK_MASK: u32 = TIMEOUT_BOOTTIME | TIMEOUT_REALTIME;
    pub const TIMEOUT_UPDATE_MASK: u32 = TIMEOUT_UPDATE | LINK_TIMEOUT_UPDATE;

    pub const SPLICE_F_FD_IN_FIXED: u32 = 1 << 31;

    pub const POLL_ADD_MULTI: u32 = 1 << 0;
    pub const POLL_UPDATE_EVENTS: u32 = 1 << 1;
    pub const POLL_UPDATE_USER_DATA: u32 = 1 << 2;
    pub const POLL_ADD_LEVEL: u32 = 1 << 3;

    pub const CANCEL_ALL: u32 = 1 << 0;
    pub const CANCEL_FD: u32 = 1 << 1;
    pub const CANCEL_ANY: u32 = 1 << 2;
    pub const CANCEL_FD_FIXED: u32 = 1 << 3;
    pub const CANCEL_USERDATA: u32 = 1 << 4;
    pub const CANCEL_OP: u32 = 1 << 5;

    pub const RECVSEND_POLL_FIRST: u16 = 1 << 0;
    pub const RECV_MULTISHOT: u16 = 1 << 1;
    pub const RECVSEND_FIXED_BUF: u16 = 1 << 2;
    pub const SEND_ZC_REPORT_USAGE: u16 = 1 << 3;
    pub const RECVSEND_BUNDLE: u16 = 1 << 4;
    pub const SEND_VECTORIZED: u16 = 1 << 5;
    /// The result of a notification: the data was copied.
    pub const NOTIF_USAGE_ZC_COPIED: u32 = 1 << 31;

    pub const ACCEPT_MULTISHOT: u16 = 1 << 0;
    pub const ACCEPT_DONTWAIT: u16 = 1 << 1;
    pub const ACCEPT_POLL_FIRST: u16 = 1 << 2;

    pub const NOP_INJECT_RESULT: u32 = 1 << 0;
    pub const NOP_FILE: u32 = 1 << 1;
    pub const NOP_FIXED_FILE: u32 = 1 << 2;
    pub const NOP_FIXED_BUFFER: u32 = 1 << 3;
    pub const NOP_TW: u32 = 1 << 4;
    pub const NOP_CQE32: u32 = 1 << 5;
}

/// `IORING_OP_URING_CMD`: its flags, the socket commands (`SOCKET_URING_OP_*`) and that of block
/// devices (`BLOCK_URING_CMD_DISCARD`).
#[allow(missing_docs)]
pub mod uring_cmd {
    pub const FIXED: u32 = 1 << 0;
    pub const MULTISHOT: u32 = 1 << 1;

    pub const SIOCINQ: u32 = 0;
    pub const SIOCOUTQ: u32 = 1;
    pub const GETSOCKOPT: u32 = 2;
    pub const SETSOCKOPT: u32 = 3;
    pub const TX_TIMESTAMP: u32 = 4;
    pub const GETSOCKNAME: u32 = 5;

    /// Bits of a time stamp's CQE: it comes from the hardware; above the shift its `SCM_TSTAMP_*`.
    pub const TSTAMP_HW: u32 = 1 << 16;
    pub const TIMESTAMP_TYPE_SHIFT: u32 = 17;

    pub const BLOCK_DISCARD: u32 = 0x12 << 8;
}

/// `IORING_FILE_INDEX_ALLOC`: "any free slot" in [`Sqe::file_index`].
pub const FILE_INDEX_ALLOC: u32 = u32::MAX;
