//! Requests on regular files.

use super::draft::{Access, Draft, Resource, chunk, iovecs, reads, simple, writes};
use super::generator::{ScenarioGenerator, maybe_fixed};
use crate::fixture;
use uringlet_abi::{Opcode, sqe};

pub(super) fn draft(g: &mut ScenarioGenerator) -> Draft {
    let mut draft = match g.rng.below(10) {
        0..7 => transfer(g),
        7 => select(g),
        _ => whole(g),
    };
    maybe_fixed(g, &mut draft);
    draft
}

fn file(g: &mut ScenarioGenerator) -> i32 {
    g.rng.pick(&fixture::FILES)
}

/// Reads and writes.
fn transfer(g: &mut ScenarioGenerator) -> Draft {
    let opcode = g.rng.pick(&[
        Opcode::Read,
        Opcode::Read,
        Opcode::Write,
        Opcode::Write,
        Opcode::Readv,
        Opcode::Writev,
        Opcode::ReadFixed,
        Opcode::WriteFixed,
    ]);
    let fd = file(g);
    let mut op = g.op(opcode);
    op.sqe.fd = fd;
    let is_direct = fd == fixture::DIRECT_FILE;
    let (off, len) = if is_direct && g.rng.percent(85) {
        (g.rng.below(36) * 512, g.rng.pick(&[512, 4096, 8192]))
    } else {
        (g.rng.below(10_000), g.rng.pick(&[0, 1, 100, 4096, 5000, 8192]))
    };
    op.sqe.off = off;
    let is_write = matches!(opcode, Opcode::Write | Opcode::Writev | Opcode::WriteFixed);
    let mut touches = vec![Access { resource: Resource::File(fd), is_write }];
    // Not on the direct file: the kernel does not advance the position there.
    if g.rng.percent(20) && !is_direct {
        op.sqe.off = u64::MAX;
        touches = vec![writes(Resource::File(fd))];
    }
    match opcode {
        Opcode::Readv | Opcode::Writev => vectored(g, &mut op, len),
        Opcode::ReadFixed | Opcode::WriteFixed => {
            let index = g.rng.below(fixture::N_FIXED_BUFFERS) as u16;
            op.sqe.buf_index = index;
            let skip = if is_direct { g.rng.below(4) * 512 } else { g.rng.below(2000) };
            op.sqe.addr = fixture::FIXED_BUFFERS + u64::from(index) * fixture::FIXED_BUFFER_LEN + skip;
            op.sqe.len = len as u32;
            touches.push(Access { resource: Resource::FixedBuffer(index), is_write: !is_write });
        }
        _ => {
            op.sqe.addr = chunk(&op);
            op.sqe.len = len as u32;
        }
    }
    if g.rng.percent(8) {
        // Some RWF_*: DSYNC, SYNC, APPEND, HIPRI, NOAPPEND, an unknown one.
        op.sqe.op_flags = g.rng.pick(&[2, 4, 0x10, 1, 0x20, 0x4000_0000]);
    }
    simple(op, touches)
}

fn vectored(g: &mut ScenarioGenerator, op: &mut crate::scenario::ScenarioOp, len: u64) {
    let lens = match g.rng.below(5) {
        0 => vec![],
        1 => vec![len],
        2 => vec![len / 4, 0, len / 2],
        3 => vec![512; 8],
        _ => vec![len / 2, len / 2],
    };
    let base = chunk(op);
    iovecs(op, base, &lens);
    op.sqe.addr = base + fixture::AUX;
    op.sqe.len = lens.len() as u32;
}

/// A read into a provided buffer.
fn select(g: &mut ScenarioGenerator) -> Draft {
    let fd = g.rng.pick(&fixture::FILES[..3]);
    let group = g.rng.pick(&[fixture::LEGACY_GROUP, fixture::RING_GROUP, fixture::RING_GROUP, fixture::NO_GROUP]);
    let opcode = g.rng.pick(&[Opcode::Read, Opcode::Read, Opcode::Read, Opcode::Write]);
    let mut op = g.op(opcode);
    op.sqe.fd = fd;
    op.sqe.flags = sqe::BUFFER_SELECT;
    op.sqe.buf_index = group;
    op.sqe.off = g.rng.pick(&[0, 100, 50_000]);
    op.sqe.len = g.rng.pick(&[0, 100, 512, 2000]);
    simple(op, vec![writes(Resource::File(fd)), writes(Resource::Group(group))])
}

/// Operations on a file as a whole.
fn whole(g: &mut ScenarioGenerator) -> Draft {
    let fd = file(g);
    let opcode = g.rng.pick(&[
        Opcode::Fsync,
        Opcode::SyncFileRange,
        Opcode::Fallocate,
        Opcode::Fallocate,
        Opcode::Ftruncate,
        Opcode::Fadvise,
        Opcode::Madvise,
    ]);
    let mut op = g.op(opcode);
    op.sqe.fd = fd;
    let mut touch = writes(Resource::File(fd));
    match opcode {
        Opcode::Fsync => {
            op.sqe.op_flags = g.rng.pick(&[0, 1, 1, 2]);
            touch = reads(Resource::File(fd));
        }
        Opcode::SyncFileRange => {
            op.sqe.off = g.rng.pick(&[0, 4096, 1 << 63]);
            op.sqe.len = g.rng.pick(&[0, 4096]);
            op.sqe.op_flags = g.rng.pick(&[0, 2, 7, 8]);
        }
        Opcode::Fallocate => {
            op.sqe.off = g.rng.pick(&[0, 100, 4096, 20_000]);
            op.sqe.addr = g.rng.pick(&[0, 100, 4096, 8192]);
            op.sqe.len = g.rng.pick(&[0, 1, 3, 0x10, 0x100]);
        }
        Opcode::Ftruncate => op.sqe.off = g.rng.pick(&[0, 10, 5000, 20_000, 1 << 63]),
        Opcode::Fadvise => {
            op.sqe.off = g.rng.pick(&[0, 4096]);
            op.sqe.len = g.rng.pick(&[0, 4096]);
            op.sqe.op_flags = g.rng.pick(&[0, 1, 2, 3, 4, 5, 9]);
        }
        _ => {
            op.sqe.addr = chunk(&op) + g.rng.pick(&[0, 0, 1]);
            op.sqe.len = 4096;
            op.sqe.op_flags = g.rng.pick(&[0, 3, 4, 99]);
        }
    }
    simple(op, vec![touch])
}
