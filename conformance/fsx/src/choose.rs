//! Chooses the next operation at random.

use crate::model::FileModel;
use crate::op::{AppendBy, BLOCK, BufferKind, Contents, FileOp, MAX_LEN, MAX_SIZE};
use conformance_rng::Rng;

/// What the filesystem and the ring support.
#[derive(Clone, Debug)]
pub(crate) struct Abilities {
    pub(crate) is_direct: bool,
    /// IORING_OP_FTRUNCATE.
    pub(crate) ring_truncates: bool,
    /// Supported modes of fallocate(2).
    pub(crate) modes: Vec<i32>,
}

type Maker = fn(&mut Rng, &FileModel, &Abilities) -> Option<FileOp>;

/// Frequency of each operation, of ten thousand. `None`: the operation is not possible now.
/// Operations that wait for the disk are rare: one takes as long as a thousand others.
const WEIGHTS: &[(u64, Maker)] = &[
    (3200, |rng, model, _| Some(reads(rng, model))),
    (3200, |rng, _, _| Some(writes(rng))),
    (400, |rng, _, _| Some(FileOp::ReadAtPosition { len: length(rng) })),
    (400, |rng, model, _| (model.position + MAX_LEN <= MAX_SIZE).then(|| FileOp::WriteAtPosition { len: length(rng) })),
    (500, |rng, model, _| appends(rng, model)),
    (6, direct_read),
    (6, |rng, _, can| can.is_direct.then(|| direct_write(rng))),
    (150, |rng, _, can| can.ring_truncates.then(|| FileOp::Truncate { size: rng.below(MAX_SIZE + 1) })),
    (100, |rng, _, _| Some(FileOp::TruncateDirectly { size: rng.below(MAX_SIZE + 1) })),
    (150, allocates),
    (4, shifts),
    (4, |rng, _, _| Some(rng.pick(&[FileOp::Sync, FileOp::DataSync]))),
    (4, |rng, _, _| Some(ranged(rng, |off, len| FileOp::SyncRange { off, len }))),
    (60, |rng, _, _| Some(ranged(rng, |off, len| FileOp::DropCache { off, len }))),
    (600, |rng, model, _| mapped(rng, model, |off, len| FileOp::MapRead { off, len })),
    (600, |rng, model, _| mapped(rng, model, |off, len| FileOp::MapWrite { off, len })),
    (200, |rng, _, _| Some(FileOp::Seek { to: rng.below(MAX_SIZE) })),
    (300, |_, _, _| Some(FileOp::CheckSize)),
    (15, |rng, _, _| Some(FileOp::Reopen { contents: if rng.percent(20) { Contents::Truncated } else { Contents::Kept } })),
];

/// An operation that is possible on the file now.
pub(crate) fn choose(rng: &mut Rng, model: &FileModel, can: &Abilities) -> FileOp {
    let total: u64 = WEIGHTS.iter().map(|(weight, _)| weight).sum();
    loop {
        let mut left = rng.below(total);
        for (weight, make) in WEIGHTS {
            if left < *weight {
                if let Some(op) = make(rng, model, can) {
                    return op;
                }
                break;
            }
            left -= weight;
        }
    }
}

/// Mostly short, sometimes whole pages, sometimes long.
fn length(rng: &mut Rng) -> u64 {
    match rng.below(20) {
        0 => 1 + rng.below(MAX_LEN),
        1..4 => BLOCK * (1 + rng.below(4)),
        4..12 => 1 + rng.below(BLOCK),
        _ => 1 + rng.below(512),
    }
}

fn offset(rng: &mut Rng, len: u64) -> u64 {
    let off = rng.below(MAX_SIZE - len + 1);
    if rng.percent(25) { off / BLOCK * BLOCK } else { off }
}

fn buffer(rng: &mut Rng) -> BufferKind {
    rng.pick(&[BufferKind::Plain, BufferKind::Plain, BufferKind::Vectored, BufferKind::Fixed])
}

/// Mostly inside the file.
fn reads(rng: &mut Rng, model: &FileModel) -> FileOp {
    let len = length(rng);
    let off = if model.size > len && rng.percent(90) { rng.below(model.size - len) } else { offset(rng, len) };
    FileOp::Read { off, len, buffer: buffer(rng) }
}

fn writes(rng: &mut Rng) -> FileOp {
    let len = length(rng);
    FileOp::Write { off: offset(rng, len), len, buffer: buffer(rng) }
}

fn appends(rng: &mut Rng, model: &FileModel) -> Option<FileOp> {
    let len = length(rng);
    let by = rng.pick(&[AppendBy::Descriptor, AppendBy::Flag]);
    (model.size + len <= MAX_SIZE).then(|| FileOp::Append { len, by, buffer: buffer(rng) })
}

fn direct_write(rng: &mut Rng) -> FileOp {
    let len = BLOCK * (1 + rng.below(8));
    FileOp::DirectWrite { off: rng.below((MAX_SIZE - len) / BLOCK + 1) * BLOCK, len }
}

/// At most up to the end of the last block: xfs returns EIO for blocks that it has preallocated
/// behind it.
fn direct_read(rng: &mut Rng, model: &FileModel, can: &Abilities) -> Option<FileOp> {
    let blocks = model.size.div_ceil(BLOCK);
    if !can.is_direct || blocks == 0 {
        return None;
    }
    let first = rng.below(blocks);
    let count = 1 + rng.below((blocks - first).min(8));
    Some(FileOp::DirectRead { off: first * BLOCK, len: count * BLOCK })
}

fn ranged(rng: &mut Rng, make: fn(u64, u64) -> FileOp) -> FileOp {
    let len = length(rng);
    make(offset(rng, len), len)
}

/// Below the end of the file: an access behind it is SIGBUS.
fn mapped(rng: &mut Rng, model: &FileModel, make: fn(u64, u64) -> FileOp) -> Option<FileOp> {
    let len = length(rng).min(model.size);
    (len > 0).then(|| make(rng.below(model.size - len + 1), len))
}

/// Modes that move the bytes behind the range.
const SHIFTS: i32 = libc::FALLOC_FL_COLLAPSE_RANGE | libc::FALLOC_FL_INSERT_RANGE;

fn allocates(rng: &mut Rng, _: &FileModel, can: &Abilities) -> Option<FileOp> {
    let mode = pick_mode(rng, can).filter(|mode| mode & SHIFTS == 0)?;
    let len = length(rng);
    Some(FileOp::Allocate { off: offset(rng, len), len, mode })
}

fn shifts(rng: &mut Rng, model: &FileModel, can: &Abilities) -> Option<FileOp> {
    let mode = pick_mode(rng, can).filter(|mode| mode & SHIFTS != 0)?;
    let len = BLOCK * (1 + rng.below(4));
    let off = rng.below((model.size / BLOCK).max(1)) * BLOCK;
    let fits =
        if mode & libc::FALLOC_FL_INSERT_RANGE != 0 { off < model.size && model.size + len <= MAX_SIZE } else { off + len < model.size };
    fits.then_some(FileOp::Allocate { off, len, mode })
}

fn pick_mode(rng: &mut Rng, can: &Abilities) -> Option<i32> {
    if can.modes.is_empty() { None } else { Some(rng.pick(&can.modes)) }
}
