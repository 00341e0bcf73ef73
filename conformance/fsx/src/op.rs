//! One operation.

use std::fmt;

/// Largest size of a file.
pub(crate) const MAX_SIZE: u64 = 256 << 10;
/// Longest transfer.
pub(crate) const MAX_LEN: u64 = 64 << 10;
/// Alignment for O_DIRECT, collapse and insert.
pub(crate) const BLOCK: u64 = 4096;

/// How the SQE names its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BufferKind {
    Plain,
    Vectored,
    Fixed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AppendBy {
    /// A descriptor with O_APPEND; the SQE's offset is ignored.
    Descriptor,
    /// RWF_APPEND.
    Flag,
}

/// Offsets and lengths in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileOp {
    Read {
        off: u64,
        len: u64,
        buffer: BufferKind,
    },
    Write {
        off: u64,
        len: u64,
        buffer: BufferKind,
    },
    /// At the file position.
    ReadAtPosition {
        len: u64,
    },
    WriteAtPosition {
        len: u64,
    },
    Append {
        len: u64,
        by: AppendBy,
        buffer: BufferKind,
    },
    DirectRead {
        off: u64,
        len: u64,
    },
    DirectWrite {
        off: u64,
        len: u64,
    },
    Truncate {
        size: u64,
    },
    Allocate {
        off: u64,
        len: u64,
        mode: i32,
    },
    Sync,
    DataSync,
    SyncRange {
        off: u64,
        len: u64,
    },
    /// POSIX_FADV_DONTNEED: drops clean pages from the page cache.
    DropCache {
        off: u64,
        len: u64,
    },
    /// From here on: system calls of this thread, not SQEs.
    TruncateDirectly {
        size: u64,
    },
    MapRead {
        off: u64,
        len: u64,
    },
    MapWrite {
        off: u64,
        len: u64,
    },
    Seek {
        to: u64,
    },
    CheckSize,
    Reopen {
        contents: Contents,
    },
}

/// The place of an operation in its link chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChainPlace {
    Single,
    Inside,
    Last,
}

impl ChainPlace {
    /// The place of operation `nth` of `length`.
    pub(crate) fn of(nth: usize, length: usize) -> Self {
        match length {
            1 => Self::Single,
            _ if nth + 1 < length => Self::Inside,
            _ => Self::Last,
        }
    }
}

/// What becomes of a file's contents when it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contents {
    Kept,
    Truncated,
}

/// What becomes of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Runs,
    /// An earlier one of its chain fails.
    IsCancelled,
}

impl FileOp {
    /// Whether the operation is a system call of this thread.
    pub(crate) fn is_direct_call(&self) -> bool {
        use FileOp::{CheckSize, MapRead, MapWrite, Reopen, Seek, TruncateDirectly};
        matches!(self, TruncateDirectly { .. } | MapRead { .. } | MapWrite { .. } | Seek { .. } | CheckSize | Reopen { .. })
    }

    /// Whether the operation may affect these bytes or the file's size.
    pub(crate) fn concerns(&self, from: u64, to: u64) -> bool {
        match *self {
            Self::Read { off, len, .. } | Self::Write { off, len, .. } | Self::MapRead { off, len } | Self::MapWrite { off, len } => {
                off < to && from < off + len
            }
            Self::Sync | Self::DataSync | Self::SyncRange { .. } | Self::DropCache { .. } | Self::Seek { .. } => false,
            _ => true,
        }
    }
}

impl fmt::Display for FileOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}
