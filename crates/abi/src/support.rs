//! What the engine supports of io_uring, as a table: for `uringlet ops`, and for tests that compare
//! it with what the engine does.
//!
//! Releases are those of Linux that brought a thing; functions are liburing's.

/// How far something is supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// As in the kernel, but for what `docs/differences.md` says.
    Full,
    /// What is missing, or otherwise.
    Partial(&'static str),
    /// Why not: it answers as an older kernel does.
    Refused(&'static str),
}

/// An opcode, an operation or a flag.
#[derive(Clone, Copy, Debug)]
pub struct SupportEntry {
    /// The C name without its prefix.
    pub name: &'static str,
    /// Its number, or the flag's bit.
    pub number: u32,
    /// Linux release.
    pub since: &'static str,
    /// The function of liburing for it; empty if there is none.
    pub function: &'static str,
    /// How far it is supported.
    pub support: Support,
}

impl SupportEntry {
    /// Whether it is supported, if only in part.
    #[must_use]
    pub const fn is_supported(&self) -> bool {
        !matches!(self.support, Support::Refused(_))
    }
}

/// Entries of one kind, in the order of their numbers.
#[derive(Clone, Copy, Debug)]
pub struct SupportGroup {
    /// Headline.
    pub title: &'static str,
    /// The C prefix of its names.
    pub prefix: &'static str,
    /// The entries.
    pub entries: &'static [SupportEntry],
}

impl SupportGroup {
    /// The bits of all flags that are supported.
    #[must_use]
    pub fn supported_bits(&self) -> u32 {
        self.entries.iter().filter(|entry| entry.is_supported()).fold(0, |bits, entry| bits | entry.number)
    }
}

use Support::{Full, Partial, Refused};

const fn row(name: &'static str, number: u32, since: &'static str, function: &'static str, support: Support) -> SupportEntry {
    SupportEntry { name, number, since, function, support }
}

/// `IORING_OP_*`.
pub const OPCODES: SupportGroup = SupportGroup {
    title: "Opcodes",
    prefix: "IORING_OP_",
    entries: &[
        row("NOP", 0, "5.1", "io_uring_prep_nop", Full),
        row("READV", 1, "5.1", "io_uring_prep_readv", Full),
        row("WRITEV", 2, "5.1", "io_uring_prep_writev", Full),
        row("FSYNC", 3, "5.1", "io_uring_prep_fsync", Full),
        row("READ_FIXED", 4, "5.1", "io_uring_prep_read_fixed", Full),
        row("WRITE_FIXED", 5, "5.1", "io_uring_prep_write_fixed", Full),
        row("POLL_ADD", 6, "5.1", "io_uring_prep_poll_add", Full),
        row("POLL_REMOVE", 7, "5.1", "io_uring_prep_poll_remove", Full),
        row("SYNC_FILE_RANGE", 8, "5.2", "io_uring_prep_sync_file_range", Full),
        row("SENDMSG", 9, "5.3", "io_uring_prep_sendmsg", Full),
        row("RECVMSG", 10, "5.3", "io_uring_prep_recvmsg", Full),
        row("TIMEOUT", 11, "5.4", "io_uring_prep_timeout", Full),
        row("TIMEOUT_REMOVE", 12, "5.5", "io_uring_prep_timeout_remove", Full),
        row("ACCEPT", 13, "5.5", "io_uring_prep_accept", Full),
        row("ASYNC_CANCEL", 14, "5.5", "io_uring_prep_cancel64", Full),
        row("LINK_TIMEOUT", 15, "5.5", "io_uring_prep_link_timeout", Full),
        row("CONNECT", 16, "5.5", "io_uring_prep_connect", Full),
        row("FALLOCATE", 17, "5.6", "io_uring_prep_fallocate", Full),
        row("OPENAT", 18, "5.6", "io_uring_prep_openat", Full),
        row("CLOSE", 19, "5.6", "io_uring_prep_close", Full),
        row("FILES_UPDATE", 20, "5.6", "io_uring_prep_files_update", Full),
        row("STATX", 21, "5.6", "io_uring_prep_statx", Full),
        row("READ", 22, "5.6", "io_uring_prep_read", Full),
        row("WRITE", 23, "5.6", "io_uring_prep_write", Full),
        row("FADVISE", 24, "5.6", "io_uring_prep_fadvise", Full),
        row("MADVISE", 25, "5.6", "io_uring_prep_madvise", Full),
        row("SEND", 26, "5.6", "io_uring_prep_send", Full),
        row("RECV", 27, "5.6", "io_uring_prep_recv", Full),
        row("OPENAT2", 28, "5.6", "io_uring_prep_openat2", Full),
        row("EPOLL_CTL", 29, "5.6", "io_uring_prep_epoll_ctl", Full),
        row("SPLICE", 30, "5.7", "io_uring_prep_splice", Full),
        row("PROVIDE_BUFFERS", 31, "5.7", "io_uring_prep_provide_buffers", Full),
        row("REMOVE_BUFFERS", 32, "5.7", "io_uring_prep_remove_buffers", Full),
        row("TEE", 33, "5.8", "io_uring_prep_tee", Full),
        row("SHUTDOWN", 34, "5.11", "io_uring_prep_shutdown", Full),
        row("RENAMEAT", 35, "5.11", "io_uring_prep_renameat", Full),
        row("UNLINKAT", 36, "5.11", "io_uring_prep_unlinkat", Full),
        row("MKDIRAT", 37, "5.15", "io_uring_prep_mkdirat", Full),
        row("SYMLINKAT", 38, "5.15", "io_uring_prep_symlinkat", Full),
        row("LINKAT", 39, "5.15", "io_uring_prep_linkat", Full),
        row("MSG_RING", 40, "5.18", "io_uring_prep_msg_ring", Full),
        row("FSETXATTR", 41, "5.19", "io_uring_prep_fsetxattr", Full),
        row("SETXATTR", 42, "5.19", "io_uring_prep_setxattr", Full),
        row("FGETXATTR", 43, "5.19", "io_uring_prep_fgetxattr", Full),
        row("GETXATTR", 44, "5.19", "io_uring_prep_getxattr", Full),
        row("SOCKET", 45, "5.19", "io_uring_prep_socket", Full),
        row(
            "URING_CMD",
            46,
            "5.19",
            "io_uring_prep_cmd_sock",
            Partial(
                "sockets, block devices, ublk; other drivers need the kernel's ring; TX_TIMESTAMP if nothing else is in the error queue",
            ),
        ),
        row("SEND_ZC", 47, "6.0", "io_uring_prep_send_zc", Partial("copies; the notification follows at once")),
        row("SENDMSG_ZC", 48, "6.1", "io_uring_prep_sendmsg_zc", Partial("copies; the notification follows at once")),
        row("READ_MULTISHOT", 49, "6.7", "io_uring_prep_read_multishot", Full),
        row("WAITID", 50, "6.7", "io_uring_prep_waitid", Full),
        row("FUTEX_WAIT", 51, "6.7", "io_uring_prep_futex_wait", Full),
        row("FUTEX_WAKE", 52, "6.7", "io_uring_prep_futex_wake", Full),
        row("FUTEX_WAITV", 53, "6.7", "io_uring_prep_futex_waitv", Full),
        row("FIXED_FD_INSTALL", 54, "6.8", "io_uring_prep_fixed_fd_install", Full),
        row("FTRUNCATE", 55, "6.9", "io_uring_prep_ftruncate", Full),
        row("BIND", 56, "6.11", "io_uring_prep_bind", Full),
        row("LISTEN", 57, "6.11", "io_uring_prep_listen", Full),
        row("RECV_ZC", 58, "6.15", "", Partial("copies, for instances without a device")),
        row("EPOLL_WAIT", 59, "6.15", "io_uring_prep_epoll_wait", Full),
        row("READV_FIXED", 60, "6.15", "io_uring_prep_readv_fixed", Full),
        row("WRITEV_FIXED", 61, "6.15", "io_uring_prep_writev_fixed", Full),
        row("PIPE", 62, "6.16", "io_uring_prep_pipe", Full),
        row("NOP128", 63, "6.19", "io_uring_prep_nop128", Full),
        row("URING_CMD128", 64, "6.19", "io_uring_prep_uring_cmd128", Partial("as URING_CMD")),
    ],
};

/// `IORING_REGISTER_*`.
pub const REGISTER: SupportGroup = SupportGroup {
    title: "Register operations",
    prefix: "IORING_REGISTER_",
    entries: &[
        row("BUFFERS", 0, "5.1", "io_uring_register_buffers", Partial("bounds of memory, not pinned pages")),
        row("UNREGISTER_BUFFERS", 1, "5.1", "io_uring_unregister_buffers", Full),
        row("FILES", 2, "5.1", "io_uring_register_files", Full),
        row("UNREGISTER_FILES", 3, "5.1", "io_uring_unregister_files", Full),
        row("EVENTFD", 4, "5.2", "io_uring_register_eventfd", Full),
        row("UNREGISTER_EVENTFD", 5, "5.2", "io_uring_unregister_eventfd", Full),
        row("FILES_UPDATE", 6, "5.5", "io_uring_register_files_update", Full),
        row("EVENTFD_ASYNC", 7, "5.6", "io_uring_register_eventfd_async", Full),
        row("PROBE", 8, "5.6", "io_uring_register_probe", Full),
        row(
            "PERSONALITY",
            9,
            "5.6",
            "io_uring_register_personality",
            Partial("all that the thread is, seccomp filters included; a forked child keeps its own"),
        ),
        row("UNREGISTER_PERSONALITY", 10, "5.6", "io_uring_unregister_personality", Full),
        row("RESTRICTIONS", 11, "5.10", "io_uring_register_restrictions", Full),
        row("ENABLE_RINGS", 12, "5.10", "io_uring_enable_rings", Full),
        row("FILES2", 13, "5.13", "io_uring_register_files_tags", Full),
        row("FILES_UPDATE2", 14, "5.13", "io_uring_register_files_update_tag", Full),
        row("BUFFERS2", 15, "5.13", "io_uring_register_buffers_tags", Partial("as BUFFERS")),
        row("BUFFERS_UPDATE", 16, "5.13", "io_uring_register_buffers_update_tag", Partial("as BUFFERS")),
        row("IOWQ_AFF", 17, "5.14", "io_uring_register_iowq_aff", Full),
        row("UNREGISTER_IOWQ_AFF", 18, "5.14", "io_uring_unregister_iowq_aff", Full),
        row("IOWQ_MAX_WORKERS", 19, "5.15", "io_uring_register_iowq_max_workers", Full),
        row("RING_FDS", 20, "5.18", "io_uring_register_ring_fd", Full),
        row("UNREGISTER_RING_FDS", 21, "5.18", "io_uring_unregister_ring_fd", Full),
        row("PBUF_RING", 22, "5.19", "io_uring_register_buf_ring", Full),
        row("UNREGISTER_PBUF_RING", 23, "5.19", "io_uring_unregister_buf_ring", Full),
        row("SYNC_CANCEL", 24, "6.0", "io_uring_register_sync_cancel", Full),
        row("FILE_ALLOC_RANGE", 25, "6.0", "io_uring_register_file_alloc_range", Full),
        row("PBUF_STATUS", 26, "6.8", "io_uring_buf_ring_head", Full),
        row("NAPI", 27, "6.9", "io_uring_register_napi", Partial("checked and told; no effect: nothing here polls a network device")),
        row("UNREGISTER_NAPI", 28, "6.9", "io_uring_unregister_napi", Partial("as NAPI")),
        row("CLOCK", 29, "6.12", "io_uring_register_clock", Full),
        row("CLONE_BUFFERS", 30, "6.12", "io_uring_clone_buffers", Full),
        row("SEND_MSG_RING", 31, "6.13", "io_uring_register_sync_msg", Full),
        row("ZCRX_IFQ", 32, "6.15", "io_uring_register_ifq", Partial("no devices: ZCRX_REG_NODEV (Linux 7.1), data is copied; import")),
        row("RESIZE_RINGS", 33, "6.13", "io_uring_resize_rings", Full),
        row("MEM_REGION", 34, "6.13", "io_uring_register_region", Partial("memory of the program's is not pinned")),
        row("QUERY", 35, "6.18", "io_uring_register_query", Full),
        row("ZCRX_CTRL", 36, "7.1", "io_uring_register_zcrx_ctrl", Partial("FLUSH_RQ; EXPORT within a process")),
        row("BPF_FILTER", 37, "7.0", "io_uring_register_bpf_filter", Full),
    ],
};

/// `IORING_SETUP_*`.
pub const SETUP: SupportGroup = SupportGroup {
    title: "Setup flags",
    prefix: "IORING_SETUP_",
    entries: &[
        row("IOPOLL", 1, "5.1", "", Partial("transfers end as on any other ring")),
        row("SQPOLL", 1 << 1, "5.1", "", Partial("no thread: NEED_WAKEUP is always set, and enter() does the work")),
        row("SQ_AFF", 1 << 2, "5.1", "", Partial("checked; there is no thread to be bound")),
        row("CQSIZE", 1 << 3, "5.5", "", Full),
        row("CLAMP", 1 << 4, "5.6", "", Full),
        row("ATTACH_WQ", 1 << 5, "5.6", "", Full),
        row("R_DISABLED", 1 << 6, "5.10", "", Full),
        row("SUBMIT_ALL", 1 << 7, "5.18", "", Full),
        row("COOP_TASKRUN", 1 << 8, "5.19", "", Full),
        row("TASKRUN_FLAG", 1 << 9, "5.19", "", Full),
        row("SQE128", 1 << 10, "5.19", "", Full),
        row("CQE32", 1 << 11, "5.19", "", Full),
        row("SINGLE_ISSUER", 1 << 12, "6.0", "", Full),
        row("DEFER_TASKRUN", 1 << 13, "6.1", "", Full),
        row("NO_MMAP", 1 << 14, "6.5", "", Full),
        row("REGISTERED_FD_ONLY", 1 << 15, "6.5", "", Full),
        row("NO_SQARRAY", 1 << 16, "6.6", "", Full),
        row("HYBRID_IOPOLL", 1 << 17, "6.13", "", Partial("as IOPOLL; no effect: nothing is polled")),
        row("CQE_MIXED", 1 << 18, "6.18", "", Full),
        row("SQE_MIXED", 1 << 19, "6.19", "", Full),
        row("SQ_REWIND", 1 << 20, "7.0", "", Full),
    ],
};

/// `IORING_FEAT_*`.
pub const FEATURES: SupportGroup = SupportGroup {
    title: "Features",
    prefix: "IORING_FEAT_",
    entries: &[
        row("SINGLE_MMAP", 1, "5.4", "", Full),
        row("NODROP", 1 << 1, "5.5", "", Full),
        row("SUBMIT_STABLE", 1 << 2, "5.5", "", Full),
        row("RW_CUR_POS", 1 << 3, "5.6", "", Full),
        row("CUR_PERSONALITY", 1 << 4, "5.6", "", Full),
        row("FAST_POLL", 1 << 5, "5.7", "", Full),
        row("POLL_32BITS", 1 << 6, "5.9", "", Full),
        row("SQPOLL_NONFIXED", 1 << 7, "5.11", "", Full),
        row("EXT_ARG", 1 << 8, "5.11", "", Full),
        row("NATIVE_WORKERS", 1 << 9, "5.12", "", Full),
        row("RSRC_TAGS", 1 << 10, "5.13", "", Full),
        row("CQE_SKIP", 1 << 11, "5.17", "", Full),
        row("LINKED_FILE", 1 << 12, "5.17", "", Full),
        row("REG_REG_RING", 1 << 13, "6.3", "", Full),
        row("RECVSEND_BUNDLE", 1 << 14, "6.10", "", Full),
        row("MIN_TIMEOUT", 1 << 15, "6.12", "", Full),
        row("RW_ATTR", 1 << 16, "6.13", "", Refused("no file here has integrity data")),
        row("NO_IOWAIT", 1 << 17, "6.15", "", Full),
    ],
};

/// `IORING_ENTER_*`.
pub const ENTER: SupportGroup = SupportGroup {
    title: "Enter flags",
    prefix: "IORING_ENTER_",
    entries: &[
        row("GETEVENTS", 1, "5.1", "", Full),
        row("SQ_WAKEUP", 1 << 1, "5.1", "", Full),
        row("SQ_WAIT", 1 << 2, "5.10", "", Full),
        row("EXT_ARG", 1 << 3, "5.11", "", Full),
        row("REGISTERED_RING", 1 << 4, "5.18", "", Full),
        row("ABS_TIMER", 1 << 5, "6.12", "", Full),
        row("EXT_ARG_REG", 1 << 6, "6.13", "", Full),
        row("NO_IOWAIT", 1 << 7, "6.15", "", Partial("no effect: a wait here never counts as a wait for a disk")),
    ],
};

/// `IOSQE_*`.
pub const SQE: SupportGroup = SupportGroup {
    title: "SQE flags",
    prefix: "IOSQE_",
    entries: &[
        row("FIXED_FILE", 1, "5.1", "", Full),
        row("IO_DRAIN", 1 << 1, "5.2", "", Full),
        row("IO_LINK", 1 << 2, "5.3", "", Full),
        row("IO_HARDLINK", 1 << 3, "5.5", "", Full),
        row("ASYNC", 1 << 4, "5.6", "", Full),
        row("BUFFER_SELECT", 1 << 5, "5.7", "", Full),
        row("CQE_SKIP_SUCCESS", 1 << 6, "5.17", "", Full),
    ],
};

/// `IORING_CQE_F_*`.
pub const CQE: SupportGroup = SupportGroup {
    title: "CQE flags",
    prefix: "IORING_CQE_F_",
    entries: &[
        row("BUFFER", 1, "5.7", "", Full),
        row("MORE", 1 << 1, "5.13", "", Full),
        row("SOCK_NONEMPTY", 1 << 2, "5.19", "", Full),
        row("NOTIF", 1 << 3, "6.0", "", Full),
        row("BUF_MORE", 1 << 4, "6.12", "", Full),
        row("SKIP", 1 << 5, "6.18", "", Full),
        row("32", 1 << 15, "6.18", "", Full),
    ],
};

/// All groups.
pub const GROUPS: [SupportGroup; 7] = [OPCODES, REGISTER, SETUP, FEATURES, ENTER, SQE, CQE];
