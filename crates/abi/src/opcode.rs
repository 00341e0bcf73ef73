//! `IORING_OP_*`.

macro_rules! opcodes {
    ($($name:ident = $value:literal, $c:literal;)*) => {
        /// What an SQE asks for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Opcode {
            $(#[doc = concat!("`IORING_OP_", $c, "`")] #[doc(alias = $c)] $name = $value,)*
        }

        impl Opcode {
            /// Every opcode, in the order of its number.
            pub const ALL: &'static [Opcode] = &[$(Opcode::$name,)*];

            /// The opcode with this number.
            #[must_use]
            pub const fn from_u8(n: u8) -> Option<Self> {
                match n {
                    $($value => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// The C name without `IORING_OP_`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $c,)*
                }
            }
        }
    };
}

opcodes! {
    Nop = 0, "NOP";
    Readv = 1, "READV";
    Writev = 2, "WRITEV";
    Fsync = 3, "FSYNC";
    ReadFixed = 4, "READ_FIXED";
    WriteFixed = 5, "WRITE_FIXED";
    PollAdd = 6, "POLL_ADD";
    PollRemove = 7, "POLL_REMOVE";
    SyncFileRange = 8, "SYNC_FILE_RANGE";
    Sendmsg = 9, "SENDMSG";
    Recvmsg = 10, "RECVMSG";
    Timeout = 11, "TIMEOUT";
    TimeoutRemove = 12, "TIMEOUT_REMOVE";
    Accept = 13, "ACCEPT";
    AsyncCancel = 14, "ASYNC_CANCEL";
    LinkTimeout = 15, "LINK_TIMEOUT";
    Connect = 16, "CONNECT";
    Fallocate = 17, "FALLOCATE";
    Openat = 18, "OPENAT";
    Close = 19, "CLOSE";
    FilesUpdate = 20, "FILES_UPDATE";
    Statx = 21, "STATX";
    Read = 22, "READ";
    Write = 23, "WRITE";
    Fadvise = 24, "FADVISE";
    Madvise = 25, "MADVISE";
    Send = 26, "SEND";
    Recv = 27, "RECV";
    Openat2 = 28, "OPENAT2";
    EpollCtl = 29, "EPOLL_CTL";
    Splice = 30, "SPLICE";
    ProvideBuffers = 31, "PROVIDE_BUFFERS";
    RemoveBuffers = 32, "REMOVE_BUFFERS";
    Tee = 33, "TEE";
    Shutdown = 34, "SHUTDOWN";
    Renameat = 35, "RENAMEAT";
    Unlinkat = 36, "UNLINKAT";
    Mkdirat = 37, "MKDIRAT";
    Symlinkat = 38, "SYMLINKAT";
    Linkat = 39, "LINKAT";
    MsgRing = 40, "MSG_RING";
    Fsetxattr = 41, "FSETXATTR";
    Setxattr = 42, "SETXATTR";
    Fgetxattr = 43, "FGETXATTR";
    Getxattr = 44, "GETXATTR";
    Socket = 45, "SOCKET";
    UringCmd = 46, "URING_CMD";
    SendZc = 47, "SEND_ZC";
    SendmsgZc = 48, "SENDMSG_ZC";
    ReadMultishot = 49, "READ_MULTISHOT";
    Waitid = 50, "WAITID";
    FutexWait = 51, "FUTEX_WAIT";
    FutexWake = 52, "FUTEX_WAKE";
    FutexWaitv = 53, "FUTEX_WAITV";
    FixedFdInstall = 54, "FIXED_FD_INSTALL";
    Ftruncate = 55, "FTRUNCATE";
    Bind = 56, "BIND";
    Listen = 57, "LISTEN";
    RecvZc = 58, "RECV_ZC";
    EpollWait = 59, "EPOLL_WAIT";
    ReadvFixed = 60, "READV_FIXED";
    WritevFixed = 61, "WRITEV_FIXED";
    Pipe = 62, "PIPE";
    Nop128 = 63, "NOP128";
    UringCmd128 = 64, "URING_CMD128";
}

impl Opcode {
    /// One past the last opcode (`IORING_OP_LAST` of Linux 6.19).
    pub const LAST: u8 = 65;
}
