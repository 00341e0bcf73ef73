//! The bytes of a file that an operation claims while it is in flight.

use crate::model::Model;
use crate::op::Op;

const END: u64 = u64::MAX;

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

    /// What it claims of a file that is in this state. Whoever sees or moves the file's end claims everything behind it.
    pub(crate) fn of(op: &Op, model: &Model) -> Self {
        let size = model.size;
        let reading = |off, len| Self::shared(off, if off + len > size { END } else { off + len });
        let writing = |off: u64, len| if off + len > size { Self::exclusive(off.min(size), END) } else { Self::exclusive(off, off + len) };
        match *op {
            Op::Read { off, len, .. } => reading(off, len),
            Op::Write { off, len, .. } => writing(off, len),
            Op::ReadHere { len } => reading(model.position, len).with_position(),
            Op::WriteHere { len } => writing(model.position, len).with_position(),
            Op::Append { .. } => Self::exclusive(size, END),
            // Past the page cache: beside nothing else.
            Op::DirectRead { .. } | Op::DirectWrite { .. } => Self::exclusive(0, END),
            Op::Truncate { size: new } | Op::TruncateNow { size: new } => Self::exclusive(size.min(new), END),
            Op::Allocate { off, len, mode } => allocation(off, len, mode, size),
            Op::Sync | Op::DataSync | Op::SyncRange { .. } | Op::Forget { .. } => Self::NOTHING,
            Op::MapRead { off, len } => Self::shared(off, off + len),
            Op::MapWrite { off, len } => Self::exclusive(off, off + len),
            Op::Seek { .. } => Self::NOTHING.with_position(),
            Op::LookAtSize => Self::shared(size, END),
            Op::Reopen { .. } => Self::exclusive(0, END).with_position(),
        }
    }

    pub(crate) fn conflicts(&self, other: &Self) -> bool {
        let overlaps = self.from < other.to && other.from < self.to;
        (overlaps && (self.is_exclusive || other.is_exclusive)) || (self.has_position && other.has_position)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Way;

    #[test]
    fn who_moves_the_end_of_a_file_claims_all_behind_it() {
        let mut model = Model::new();
        model.size = 1000;
        let extends = Claim::of(&Op::Write { off: 2000, len: 10, way: Way::Plain }, &model);
        let sees_end = Claim::of(&Op::Read { off: 900, len: 200, way: Way::Plain }, &model);
        let below = Claim::of(&Op::Read { off: 900, len: 100, way: Way::Plain }, &model);
        assert!(extends.conflicts(&sees_end));
        assert!(!extends.conflicts(&below));
        assert!(!sees_end.conflicts(&below));
        assert!(extends.conflicts(&Claim::of(&Op::LookAtSize, &model)));
    }

    #[test]
    fn one_file_position_is_one_at_a_time() {
        let model = Model::new();
        let claim = Claim::of(&Op::Seek { to: 5 }, &model);
        assert!(claim.conflicts(&Claim::of(&Op::ReadHere { len: 5 }, &model)));
        assert!(!claim.conflicts(&Claim::of(&Op::Sync, &model)));
    }
}
