//! One operation, and what of its file it claims while it is in flight.

use crate::model::Model;
use std::fmt;

/// No file grows beyond it.
pub(crate) const MAX_SIZE: u64 = 256 << 10;
/// The longest transfer.
pub(crate) const MAX_LEN: u64 = 64 << 10;
/// What O_DIRECT, collapse and insert are aligned to.
pub(crate) const BLOCK: u64 = 4096;
const END: u64 = u64::MAX;

/// How a buffer is named in the SQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Plain,
    Vectored,
    Fixed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AppendBy {
    /// A descriptor with O_APPEND; the SQE's offset is to be ignored.
    Descriptor,
    /// RWF_APPEND.
    Flag,
}

/// Offsets and lengths in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Read {
        off: u64,
        len: u64,
        way: Way,
    },
    Write {
        off: u64,
        len: u64,
        way: Way,
    },
    /// At the file position.
    ReadHere {
        len: u64,
    },
    WriteHere {
        len: u64,
    },
    Append {
        len: u64,
        by: AppendBy,
        way: Way,
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
    /// POSIX_FADV_DONTNEED: what is clean leaves the page cache.
    Forget {
        off: u64,
        len: u64,
    },
    /// From here on: done by the thread itself, past the ring.
    TruncateNow {
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
    LookAtSize,
    Reopen {
        truncates: bool,
    },
}

/// The bytes of a file that an operation reads or changes. What claims overlap must not be in flight together: the order would be anybody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    from: u64,
    to: u64,
    is_exclusive: bool,
    has_position: bool,
}

impl Claim {
    const NOTHING: Self = Self { from: 0, to: 0, is_exclusive: false, has_position: false };

    fn shared(from: u64, to: u64) -> Self {
        Self { from, to, ..Self::NOTHING }
    }

    fn exclusive(from: u64, to: u64) -> Self {
        Self { from, to, is_exclusive: true, has_position: false }
    }

    fn with_position(self) -> Self {
        Self { has_position: true, ..self }
    }

    pub(crate) fn conflicts(&self, other: &Self) -> bool {
        let overlaps = self.from < other.to && other.from < self.to;
        (overlaps && (self.is_exclusive || other.is_exclusive)) || (self.has_position && other.has_position)
    }
}

impl Op {
    /// What it claims of a file that is in this state. Whoever sees or moves the file's end claims everything behind it.
    pub(crate) fn claim(&self, model: &Model) -> Claim {
        let size = model.size;
        let reading = |off, len| Claim::shared(off, if off + len > size { END } else { off + len });
        let writing =
            |off: u64, len| if off + len > size { Claim::exclusive(off.min(size), END) } else { Claim::exclusive(off, off + len) };
        match *self {
            Self::Read { off, len, .. } => reading(off, len),
            Self::Write { off, len, .. } => writing(off, len),
            Self::ReadHere { len } => reading(model.position, len).with_position(),
            Self::WriteHere { len } => writing(model.position, len).with_position(),
            Self::Append { .. } => Claim::exclusive(size, END),
            // Past the page cache: beside nothing else.
            Self::DirectRead { .. } | Self::DirectWrite { .. } => Claim::exclusive(0, END),
            Self::Truncate { size: new } | Self::TruncateNow { size: new } => Claim::exclusive(size.min(new), END),
            Self::Allocate { off, len, mode } => allocation(off, len, mode, size),
            Self::Sync | Self::DataSync | Self::SyncRange { .. } | Self::Forget { .. } => Claim::NOTHING,
            Self::MapRead { off, len } => Claim::shared(off, off + len),
            Self::MapWrite { off, len } => Claim::exclusive(off, off + len),
            Self::Seek { .. } => Claim::NOTHING.with_position(),
            Self::LookAtSize => Claim::shared(size, END),
            Self::Reopen { .. } => Claim::exclusive(0, END).with_position(),
        }
    }

    /// Whether the thread does it itself.
    pub(crate) fn is_by_hand(&self) -> bool {
        use Op::{LookAtSize, MapRead, MapWrite, Reopen, Seek, TruncateNow};
        matches!(self, TruncateNow { .. } | MapRead { .. } | MapWrite { .. } | Seek { .. } | LookAtSize | Reopen { .. })
    }

    /// Whether it may have to do with these bytes, or with the file's size.
    pub(crate) fn concerns(&self, from: u64, to: u64) -> bool {
        match *self {
            Self::Read { off, len, .. } | Self::Write { off, len, .. } | Self::MapRead { off, len } | Self::MapWrite { off, len } => {
                off < to && from < off + len
            }
            Self::Sync | Self::DataSync | Self::SyncRange { .. } | Self::Forget { .. } | Self::Seek { .. } => false,
            _ => true,
        }
    }
}

fn allocation(off: u64, len: u64, mode: i32, size: u64) -> Claim {
    let keeps_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
    if mode & (libc::FALLOC_FL_COLLAPSE_RANGE | libc::FALLOC_FL_INSERT_RANGE) != 0 {
        return Claim::exclusive(off, END);
    }
    let changes = mode & (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE) != 0;
    match (keeps_size || off + len <= size, changes) {
        (true, true) => Claim::exclusive(off, off + len),
        (true, false) if keeps_size => Claim::NOTHING,
        // It would make the file longer if somebody else made it shorter.
        (true, false) => Claim::shared(off, off + len),
        (false, _) => Claim::exclusive(off.min(size), END),
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_moves_the_end_of_a_file_claims_all_behind_it() {
        let mut model = Model::new();
        model.size = 1000;
        let extends = Op::Write { off: 2000, len: 10, way: Way::Plain }.claim(&model);
        let sees_end = Op::Read { off: 900, len: 200, way: Way::Plain }.claim(&model);
        let below = Op::Read { off: 900, len: 100, way: Way::Plain }.claim(&model);
        assert!(extends.conflicts(&sees_end));
        assert!(!extends.conflicts(&below));
        assert!(!sees_end.conflicts(&below));
        assert!(extends.conflicts(&Op::LookAtSize.claim(&model)));
    }

    #[test]
    fn one_file_position_is_one_at_a_time() {
        let model = Model::new();
        let claim = Op::Seek { to: 5 }.claim(&model);
        assert!(claim.conflicts(&Op::ReadHere { len: 5 }.claim(&model)));
        assert!(!claim.conflicts(&Op::Sync.claim(&model)));
    }
}
