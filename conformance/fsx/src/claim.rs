//! The bytes of a file that an operation claims while it is in flight.

use crate::model::FileModel;
use crate::op::FileOp;

const END: u64 = u64::MAX;

/// The bytes of a file that an operation reads or changes. Operations whose claims conflict must
/// not be in flight together: their order is undefined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RangeClaim {
    from: u64,
    to: u64,
    is_exclusive: bool,
    has_position: bool,
}

impl RangeClaim {
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

    /// The claim of an operation on a file in this state. An operation that sees or moves the end
    /// of the file claims everything behind it.
    pub(crate) fn of(op: &FileOp, model: &FileModel) -> Self {
        let size = model.size;
        let reading = |off, len| Self::shared(off, if off + len > size { END } else { off + len });
        let writing = |off: u64, len| if off + len > size { Self::exclusive(off.min(size), END) } else { Self::exclusive(off, off + len) };
        match *op {
            FileOp::Read { off, len, .. } => reading(off, len),
            FileOp::Write { off, len, .. } => writing(off, len),
            FileOp::ReadAtPosition { len } => reading(model.position, len).with_position(),
            FileOp::WriteAtPosition { len } => writing(model.position, len).with_position(),
            FileOp::Append { .. } => Self::exclusive(size, END),
            // Bypasses the page cache: nothing else at the same time.
            FileOp::DirectRead { .. } | FileOp::DirectWrite { .. } => Self::exclusive(0, END),
            FileOp::Truncate { size: new } | FileOp::TruncateDirectly { size: new } => Self::exclusive(size.min(new), END),
            FileOp::Allocate { off, len, mode } => allocation(off, len, mode, size),
            FileOp::Sync | FileOp::DataSync | FileOp::SyncRange { .. } | FileOp::DropCache { .. } => Self::NOTHING,
            FileOp::MapRead { off, len } => Self::shared(off, off + len),
            FileOp::MapWrite { off, len } => Self::exclusive(off, off + len),
            FileOp::Seek { .. } => Self::NOTHING.with_position(),
            FileOp::CheckSize => Self::shared(size, END),
            FileOp::Reopen { .. } => Self::exclusive(0, END).with_position(),
        }
    }

    pub(crate) fn conflicts(&self, other: &Self) -> bool {
        let overlaps = self.from < other.to && other.from < self.to;
        (overlaps && (self.is_exclusive || other.is_exclusive)) || (self.has_position && other.has_position)
    }
}

fn allocation(off: u64, len: u64, mode: i32, size: u64) -> RangeClaim {
    let keeps_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
    if mode & (libc::FALLOC_FL_COLLAPSE_RANGE | libc::FALLOC_FL_INSERT_RANGE) != 0 {
        return RangeClaim::exclusive(off, END);
    }
    let changes = mode & (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE) != 0;
    match (keeps_size || off + len <= size, changes) {
        (true, true) => RangeClaim::exclusive(off, off + len),
        (true, false) if keeps_size => RangeClaim::NOTHING,
        // Extends the file if another operation shortens it first.
        (true, false) => RangeClaim::shared(off, off + len),
        (false, _) => RangeClaim::exclusive(off.min(size), END),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::BufferKind;

    #[test]
    fn moving_the_end_of_a_file_claims_everything_behind_it() {
        let mut model = FileModel::new();
        model.size = 1000;
        let extends = RangeClaim::of(&FileOp::Write { off: 2000, len: 10, buffer: BufferKind::Plain }, &model);
        let sees_end = RangeClaim::of(&FileOp::Read { off: 900, len: 200, buffer: BufferKind::Plain }, &model);
        let below = RangeClaim::of(&FileOp::Read { off: 900, len: 100, buffer: BufferKind::Plain }, &model);
        assert!(extends.conflicts(&sees_end));
        assert!(!extends.conflicts(&below));
        assert!(!sees_end.conflicts(&below));
        assert!(extends.conflicts(&RangeClaim::of(&FileOp::CheckSize, &model)));
    }

    #[test]
    fn operations_at_the_file_position_conflict() {
        let model = FileModel::new();
        let claim = RangeClaim::of(&FileOp::Seek { to: 5 }, &model);
        assert!(claim.conflicts(&RangeClaim::of(&FileOp::ReadAtPosition { len: 5 }, &model)));
        assert!(!claim.conflicts(&RangeClaim::of(&FileOp::Sync, &model)));
    }
}
