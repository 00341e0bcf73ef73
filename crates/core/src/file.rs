//! The kind of file behind a descriptor, which decides how a read or a write is tried.
//!
//! The kind is cached by number. It may be stale if a program closes a number without the engine's
//! knowledge. So it only decides *how* a request is tried; code that would do harm on another kind
//! of file checks first.

use crate::hash::multiplicative_hash;
use uringlet_sys::io::FileStat;
use uringlet_sys::{Errno, fd_table, io};

const S_IFMT: u32 = 0o170_000;
const KNOWN: u16 = 1;
const SEEKABLE: u16 = 1 << 1;
const SOCKET: u16 = 1 << 2;
const DIRECT: u16 = 1 << 4;
const NO_NOWAIT_READ: u16 = 1 << 5;
const NO_NOWAIT_WRITE: u16 = 1 << 6;
const BAD: u16 = 1 << 7;
const SYNCHRONOUS: u16 = 1 << 8;
/// Seven bits of a hash of the inode.
const INODE: u16 = 0x7f << 9;

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IoDirection {
    Read,
    Write,
}

impl IoDirection {
    const fn no_nowait(self) -> u16 {
        match self {
            Self::Read => NO_NOWAIT_READ,
            Self::Write => NO_NOWAIT_WRITE,
        }
    }
}

/// The kind of a file, as bits that fit into the descriptor table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileKind(u16);

fn hash_of_inode(dev: u64, ino: u64) -> u16 {
    let [_, _, _, _, _, _, low, high] = multiplicative_hash(ino ^ dev.rotate_left(32)).to_le_bytes();
    u16::from_le_bytes([low, high]) & INODE
}

impl FileKind {
    /// The kind of a number whose file is unknown.
    pub(crate) const UNKNOWN: Self = Self(0);

    /// The kind of `fd`, from the table or from the kernel.
    #[inline]
    pub(crate) fn of(fd: i32) -> Self {
        match fd_table::kind(fd) {
            0 => Self::refresh(fd),
            kind => Self(kind),
        }
    }

    /// The kind of `fd` if it is in the table, else [`UNKNOWN`](Self::UNKNOWN).
    #[inline]
    pub(crate) fn cached(fd: i32) -> Self {
        Self(fd_table::kind(fd))
    }

    /// It has positions, a page cache, and reads that can be tried without waiting.
    #[inline]
    pub(crate) fn is_cached_file(self) -> bool {
        self.0 & (SEEKABLE | DIRECT | NO_NOWAIT_READ | BAD) == SEEKABLE
    }

    /// As [`is_cached_file`](Self::is_cached_file), and a write ends when the page cache has its
    /// data.
    #[inline]
    pub(crate) fn has_cached_writes(self) -> bool {
        self.0 & (SEEKABLE | DIRECT | SYNCHRONOUS | BAD) == SEEKABLE
    }

    /// Asks the kernel, and caches the kind.
    #[cold]
    pub(crate) fn refresh(fd: i32) -> Self {
        let Ok(kind) = Self::query(fd) else { return Self(KNOWN | BAD) };
        fd_table::set_kind(fd, kind);
        Self(kind)
    }

    /// Whether the number has another file than the one of its kind in the table. Then that one's
    /// kind is cached, and what was learned of the earlier file is forgotten.
    ///
    /// The same file, opened again with other flags, is none: flags only decide how it is tried.
    pub(crate) fn has_changed(fd: i32) -> bool {
        let file = io::fstat(fd).map_or(0, |stat| Self::of_file(&stat));
        let has_changed = fd_table::kind(fd) & Self::OF_FILE != file;
        if has_changed {
            fd_table::forget_kind(fd);
            fd_table::set_kind(fd, Self::query(fd).unwrap_or(0));
        }
        has_changed
    }

    /// The bits that an inode determines.
    const OF_FILE: u16 = KNOWN | SEEKABLE | SOCKET | INODE;

    fn of_file(stat: &FileStat) -> u16 {
        let sort = match stat.mode & S_IFMT {
            0o100_000 | 0o060_000 => SEEKABLE,
            0o140_000 => SOCKET,
            _ => 0,
        };
        KNOWN | sort | hash_of_inode(stat.dev, stat.ino)
    }

    fn query(fd: i32) -> Result<u16, Errno> {
        let file = Self::of_file(&io::fstat(fd)?);
        let flags = if file & SEEKABLE != 0 { io::file_flags(fd)? } else { 0 };
        let direct = if flags & io::O_DIRECT != 0 { DIRECT } else { 0 };
        let synchronous = if flags & (io::O_DSYNC | io::O_SYNC) != 0 { SYNCHRONOUS } else { 0 };
        Ok(file | direct | synchronous)
    }

    /// Whether two numbers of these kinds can be of one open file.
    pub(crate) fn may_be_same(self, other: Self) -> bool {
        (self.0 ^ other.0) & (INODE | SEEKABLE | SOCKET) == 0
    }

    /// Regular file or block device: has positions, is always "ready".
    pub(crate) fn is_seekable(self) -> bool {
        self.0 & SEEKABLE != 0
    }

    pub(crate) fn is_socket(self) -> bool {
        self.0 & SOCKET != 0
    }

    /// Opened with `O_DIRECT`.
    pub(crate) fn is_direct(self) -> bool {
        self.0 & DIRECT != 0
    }

    /// Opened with `O_SYNC` or `O_DSYNC`: a write waits for the disk.
    pub(crate) fn is_synchronous(self) -> bool {
        self.0 & SYNCHRONOUS != 0
    }

    /// No open file.
    pub(crate) fn is_bad(self) -> bool {
        self.0 & BAD != 0
    }

    /// Whether transfers in this direction may be tried with `RWF_NOWAIT`.
    pub(crate) fn supports_nowait(self, direction: IoDirection) -> bool {
        self.0 & direction.no_nowait() == 0
    }

    /// Remembers that the file refused `RWF_NOWAIT` (EOPNOTSUPP).
    pub(crate) fn note_nowait_unsupported(self, fd: i32, direction: IoDirection) {
        fd_table::set_kind(fd, self.0 | direction.no_nowait());
    }
}

#[cfg(test)]
impl FileKind {
    pub(crate) const CACHED: Self = Self(KNOWN | SEEKABLE);
    pub(crate) const DIRECT: Self = Self(KNOWN | SEEKABLE | DIRECT);
    pub(crate) const SYNCHRONOUS: Self = Self(KNOWN | SEEKABLE | SYNCHRONOUS);
    pub(crate) const STREAM: Self = Self(KNOWN);

    /// The same file, which refuses `RWF_NOWAIT`.
    pub(crate) const fn without_nowait(self, direction: IoDirection) -> Self {
        Self(self.0 | direction.no_nowait())
    }
}
