//! Groups of opcodes, as filters name them.

use uringlet_abi::Opcode;

/// What an opcode is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// Bytes of files.
    File,
    /// Names, attributes, descriptors of files.
    Meta,
    /// Sockets.
    Net,
    Poll,
    Timeout,
    Futex,
    /// Commands to files.
    Command,
    /// The ring itself: its buffers, files, requests, other rings.
    Ring,
    Nop,
}

impl Group {
    /// Name and group, for filters.
    pub(crate) const ALL: &[(&str, Self)] = &[
        ("%file", Self::File),
        ("%meta", Self::Meta),
        ("%net", Self::Net),
        ("%poll", Self::Poll),
        ("%timeout", Self::Timeout),
        ("%futex", Self::Futex),
        ("%command", Self::Command),
        ("%ring", Self::Ring),
        ("%nop", Self::Nop),
    ];

    pub(crate) const fn of(opcode: Opcode) -> Self {
        match opcode {
            Opcode::Nop | Opcode::Nop128 => Self::Nop,
            Opcode::Read
            | Opcode::Readv
            | Opcode::ReadFixed
            | Opcode::ReadvFixed
            | Opcode::ReadMultishot
            | Opcode::Write
            | Opcode::Writev
            | Opcode::WriteFixed
            | Opcode::WritevFixed
            | Opcode::Fsync
            | Opcode::SyncFileRange
            | Opcode::Fallocate
            | Opcode::Fadvise
            | Opcode::Madvise
            | Opcode::Ftruncate
            | Opcode::Splice
            | Opcode::Tee => Self::File,
            Opcode::Openat
            | Opcode::Openat2
            | Opcode::Close
            | Opcode::Statx
            | Opcode::Renameat
            | Opcode::Unlinkat
            | Opcode::Mkdirat
            | Opcode::Symlinkat
            | Opcode::Linkat
            | Opcode::Setxattr
            | Opcode::Getxattr
            | Opcode::Fsetxattr
            | Opcode::Fgetxattr
            | Opcode::FixedFdInstall
            | Opcode::Pipe => Self::Meta,
            Opcode::Sendmsg
            | Opcode::Recvmsg
            | Opcode::Accept
            | Opcode::Connect
            | Opcode::Send
            | Opcode::Recv
            | Opcode::Shutdown
            | Opcode::Socket
            | Opcode::SendZc
            | Opcode::SendmsgZc
            | Opcode::Bind
            | Opcode::Listen
            | Opcode::RecvZc => Self::Net,
            Opcode::PollAdd | Opcode::PollRemove | Opcode::EpollCtl | Opcode::EpollWait => Self::Poll,
            Opcode::Timeout | Opcode::TimeoutRemove | Opcode::LinkTimeout => Self::Timeout,
            Opcode::FutexWait | Opcode::FutexWake | Opcode::FutexWaitv | Opcode::Waitid => Self::Futex,
            Opcode::UringCmd | Opcode::UringCmd128 => Self::Command,
            Opcode::AsyncCancel | Opcode::FilesUpdate | Opcode::ProvideBuffers | Opcode::RemoveBuffers | Opcode::MsgRing => Self::Ring,
        }
    }
}

/// Whether the result is a number of bytes.
pub(crate) const fn moves_bytes(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::Read
            | Opcode::Readv
            | Opcode::ReadFixed
            | Opcode::ReadvFixed
            | Opcode::ReadMultishot
            | Opcode::Write
            | Opcode::Writev
            | Opcode::WriteFixed
            | Opcode::WritevFixed
            | Opcode::Splice
            | Opcode::Tee
            | Opcode::Send
            | Opcode::Recv
            | Opcode::Sendmsg
            | Opcode::Recvmsg
            | Opcode::SendZc
            | Opcode::SendmsgZc
            | Opcode::RecvZc
    )
}
