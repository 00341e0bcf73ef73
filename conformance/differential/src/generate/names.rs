//! Requests on names. All names are one resource, so such requests are in one chain.

use super::draft::{Draft, Resource, chunk, simple, writes};
use super::generator::ScenarioGenerator;
use crate::fixture;
use crate::scenario::{ResultKind, ScenarioOp};
use conformance_rng::Rng;
use uringlet_abi::{FILE_INDEX_ALLOC, Opcode};

fn path(g: &mut ScenarioGenerator) -> &'static str {
    g.rng.pick(&fixture::NAMES)
}

fn put_path(op: &mut ScenarioOp, at: u64, path: &str) -> u64 {
    let address = chunk(op) + at;
    op.memory.push((address, [path.as_bytes(), b"\0"].concat()));
    address
}

pub(super) fn draft(g: &mut ScenarioGenerator) -> Draft {
    let opcode = g.rng.pick(&[
        Opcode::Openat,
        Opcode::Openat,
        Opcode::Openat2,
        Opcode::Close,
        Opcode::Close,
        Opcode::Statx,
        Opcode::Statx,
        Opcode::Unlinkat,
        Opcode::Renameat,
        Opcode::Mkdirat,
        Opcode::Symlinkat,
        Opcode::Linkat,
    ]);
    let mut op = g.op(opcode);
    let mut touches = vec![writes(Resource::Names)];
    op.sqe.fd = g.rng.pick(&[
        fixture::DIRECTORY,
        fixture::DIRECTORY,
        fixture::DIRECTORY,
        libc::AT_FDCWD,
        libc::AT_FDCWD,
        libc::AT_FDCWD,
        fixture::NULL,
    ]);
    let name = path(g);
    match opcode {
        Opcode::Openat | Opcode::Openat2 => {
            open(g, &mut op, name);
            touches.push(writes(Resource::Table));
        }
        Opcode::Close => {
            close(g, &mut op);
            touches.push(writes(Resource::Table));
        }
        Opcode::Statx => {
            // The engine rejects an empty path a little later, which would show where it ends a
            // submission.
            let is_empty = g.rng.percent(15);
            op.sqe.addr = put_path(&mut op, fixture::AUX, if is_empty { "" } else { name });
            op.sqe.off = chunk(&op) + fixture::AUX2;
            op.sqe.len = 0x7ff;
            op.sqe.op_flags = if is_empty { 0x1000 } else { g.rng.pick(&[0, 0, 0x100, 0x8000_0000]) };
            op.result = ResultKind::Statx(op.sqe.off);
            // A generator of its own, so that the other requests of a seed are the same as before
            // attributes were added.
            attribute(&mut g.rng.clone(), &mut op);
        }
        Opcode::Unlinkat => {
            op.sqe.addr = put_path(&mut op, fixture::AUX, name);
            op.sqe.op_flags = g.rng.pick(&[0, 0, 0x200, 1]);
        }
        Opcode::Mkdirat => {
            op.sqe.addr = put_path(&mut op, fixture::AUX, name);
            op.sqe.len = g.rng.pick(&[0o755, 0o700]);
        }
        _ => two_names(g, &mut op, opcode, name),
    }
    simple(op, touches)
}

fn two_names(g: &mut ScenarioGenerator, op: &mut ScenarioOp, opcode: Opcode, old: &str) {
    let new = path(g);
    op.sqe.addr = put_path(op, fixture::AUX, old);
    op.sqe.off = put_path(op, fixture::AUX2, new);
    match opcode {
        Opcode::Symlinkat => {}
        Opcode::Linkat => {
            op.sqe.len = fixture::DIRECTORY as u32;
            op.sqe.op_flags = g.rng.pick(&[0, 0, 0, 0x400, 7]);
        }
        _ => {
            op.sqe.len = fixture::DIRECTORY as u32;
            op.sqe.op_flags = g.rng.pick(&[0, 0, 0, 1, 2, 2, 3, 16]);
        }
    }
}

/// Turns about half of the requests into others: for an attribute of a name, or of a regular file.
fn attribute(rng: &mut Rng, op: &mut ScenarioOp) {
    let opcode = match rng.below(8) {
        0 => Opcode::Setxattr,
        1 => Opcode::Getxattr,
        2 => Opcode::Fsetxattr,
        3 => Opcode::Fgetxattr,
        _ => return,
    };
    op.result = ResultKind::Number;
    op.memory.clear();
    op.sqe.opcode = opcode as u8;
    let name = rng.pick(&["user.a", "user.a", "user.b", "user.b", "nothing.a", ""]);
    op.sqe.addr = put_path(op, fixture::AUX, name);
    if matches!(opcode, Opcode::Setxattr | Opcode::Getxattr) {
        op.sqe.addr3 = put_path(op, fixture::AUX + 512, rng.pick(&fixture::NAMES));
    } else {
        op.sqe.fd = rng.pick(&fixture::FILES);
    }
    op.sqe.len = rng.pick(&[0, 1, 9, 100]);
    if matches!(opcode, Opcode::Setxattr | Opcode::Fsetxattr) {
        op.sqe.op_flags = rng.pick(&[0, 0, 0, 1, 2, 4]);
        op.memory.push((op.sqe.off, vec![op.sqe.user_data as u8; 100]));
    } else {
        op.sqe.op_flags = rng.pick(&[0, 0, 0, 0, 0, 1]);
    }
}

/// Creates a descriptor with a number of its own, or a registered file.
fn open(g: &mut ScenarioGenerator, op: &mut ScenarioOp, name: &str) {
    op.sqe.addr = put_path(op, fixture::AUX, name);
    let flags = g.rng.pick(&[
        libc::O_RDONLY,
        libc::O_RDWR | libc::O_CREAT,
        libc::O_RDWR | libc::O_CREAT | libc::O_EXCL,
        libc::O_RDWR | libc::O_TRUNC,
        libc::O_RDONLY | libc::O_DIRECTORY,
        libc::O_RDONLY | libc::O_CLOEXEC,
        libc::O_PATH,
        libc::O_WRONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK,
    ]);
    if op.sqe.opcode == Opcode::Openat2 as u8 {
        let mode = if flags & libc::O_CREAT != 0 || g.rng.percent(5) { 0o640_u64 } else { 0 };
        let resolve = g.rng.pick(&[0, 0, 4, 8, 0x10, 0x20, 0x800]);
        let how = [(flags as u64).to_ne_bytes(), mode.to_ne_bytes(), u64::to_ne_bytes(resolve)].concat();
        op.sqe.off = chunk(op) + fixture::AUX2;
        op.memory.push((op.sqe.off, how));
        op.sqe.len = g.rng.pick(&[24, 24, 24, 32, 16]);
        op.memory.push((op.sqe.off + 24, vec![0; 8]));
    } else {
        op.sqe.op_flags = flags as u32;
        op.sqe.len = 0o640;
    }
    if g.rng.percent(25) {
        op.sqe.splice_fd_in = g.rng.pick(&[14, 15, 16, 17, 99, FILE_INDEX_ALLOC as i32]);
        return;
    }
    op.result = ResultKind::Descriptor(g.next_adopted);
    g.next_adopted += 1;
}

fn close(g: &mut ScenarioGenerator, op: &mut ScenarioOp) {
    let newest = (g.next_adopted - 1).max(fixture::ADOPTED);
    op.sqe.fd = match g.rng.below(8) {
        0..3 => newest,
        3..5 => g.rng.pick(&fixture::VICTIMS),
        5 => fixture::CLOSED,
        _ => {
            op.sqe.splice_fd_in = g.rng.pick(&[13, 14, 15, 16, 90]);
            g.rng.pick(&[0, 0, 0, 5])
        }
    };
}
