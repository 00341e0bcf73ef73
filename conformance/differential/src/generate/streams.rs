//! Requests on pipes, sockets and event counters.

use super::draft::{Draft, Resource, chunk, iovecs, resource_of, simple, writes};
use super::generator::{ScenarioGenerator, maybe_fixed};
use crate::fixture;
use crate::scenario::ResultKind;
use uringlet_abi::{Opcode, op_flags, sqe};

pub(super) fn draft(g: &mut ScenarioGenerator) -> Draft {
    let mut draft = match g.rng.below(20) {
        0..6 => pipe(g),
        6..12 => socket(g),
        12..14 => messages(g),
        14 | 15 => splice(g),
        16 => event(g),
        17 => shutdown(g),
        18 => connections(g),
        _ => multishot(g),
    };
    maybe_fixed(g, &mut draft);
    draft
}

fn length(g: &mut ScenarioGenerator) -> u32 {
    g.rng.pick(&[0, 1, 10, 100, 300, 600, 2000, 5000])
}

/// Takes a provided buffer instead of the request's own.
fn maybe_select(g: &mut ScenarioGenerator, draft: &mut Draft, groups: &[u16]) {
    if g.rng.percent(25) {
        let group = g.rng.pick(groups);
        draft.op.sqe.flags |= sqe::BUFFER_SELECT;
        draft.op.sqe.buf_index = group;
        draft.op.sqe.addr = 0;
        draft.touches.push(writes(Resource::Group(group)));
    }
}

fn pipe(g: &mut ScenarioGenerator) -> Draft {
    let base = g.rng.pick(&fixture::PIPES);
    let opcode = g.rng.pick(&[Opcode::Read, Opcode::Read, Opcode::Write, Opcode::Write, Opcode::Readv, Opcode::Writev, Opcode::ReadFixed]);
    let mut op = g.op(opcode);
    let is_write = matches!(opcode, Opcode::Write | Opcode::Writev);
    op.sqe.fd = base + i32::from(is_write ^ g.rng.percent(2));
    op.sqe.off = g.rng.pick(&[u64::MAX, u64::MAX, 0, 77]);
    op.sqe.addr = chunk(&op);
    op.sqe.len = length(g);
    op.may_pend = true;
    let mut touches = vec![writes(Resource::File(base))];
    if matches!(opcode, Opcode::Readv | Opcode::Writev) {
        let address = chunk(&op);
        let lens: &[u64] = if g.rng.percent(50) { &[100, 0, 300] } else { &[600] };
        iovecs(&mut op, address, lens);
        op.sqe.addr = address + fixture::AUX;
        op.sqe.len = lens.len() as u32;
    }
    if opcode == Opcode::ReadFixed {
        op.sqe.addr = fixture::FIXED_BUFFERS;
        touches.push(writes(Resource::FixedBuffer(0)));
    }
    let mut draft = simple(op, touches);
    if opcode == Opcode::Read {
        maybe_select(g, &mut draft, &[fixture::LEGACY_GROUP, fixture::RING_GROUP, fixture::NO_GROUP]);
    }
    draft
}

fn socket(g: &mut ScenarioGenerator) -> Draft {
    let base = g.rng.pick(&fixture::SOCKETS);
    let opcode =
        g.rng.pick(&[Opcode::Recv, Opcode::Recv, Opcode::Recv, Opcode::Send, Opcode::Send, Opcode::Send, Opcode::Read, Opcode::Write]);
    let mut op = g.op(opcode);
    let is_write = matches!(opcode, Opcode::Send | Opcode::Write);
    op.sqe.fd = base + i32::from(is_write ^ g.rng.percent(5));
    op.sqe.addr = chunk(&op);
    op.sqe.len = length(g);
    op.may_pend = true;
    if matches!(opcode, Opcode::Recv | Opcode::Send) {
        if g.rng.percent(30) {
            // PEEK, TRUNC, DONTWAIT, WAITALL, NOSIGNAL.
            op.sqe.op_flags = g.rng.pick(&[2, 0x20, 0x40, 0x100, 0x4000]);
        }
        if g.rng.percent(10) {
            op.sqe.ioprio = op_flags::RECVSEND_POLL_FIRST;
        }
    }
    let mut draft = simple(op, vec![writes(Resource::File(base))]);
    if opcode == Opcode::Recv {
        maybe_select(g, &mut draft, &[fixture::LEGACY_GROUP, fixture::RING_GROUP, fixture::NO_GROUP]);
    }
    draft
}

fn messages(g: &mut ScenarioGenerator) -> Draft {
    let base = g.rng.pick(&fixture::SOCKETS);
    let opcode = g.rng.pick(&[Opcode::Sendmsg, Opcode::Recvmsg]);
    let mut op = g.op(opcode);
    op.sqe.fd = base + i32::from(opcode == Opcode::Sendmsg);
    let data = chunk(&op);
    let lens: &[u64] = match g.rng.below(3) {
        0 => &[200],
        1 => &[50, 60],
        _ => &[],
    };
    iovecs(&mut op, data, lens);
    let (iov, n) = (data + fixture::AUX, lens.len() as u64);
    let (name, control) = (if g.rng.percent(20) { data + fixture::AUX2 + 256 } else { 0 }, 0_u64);
    let name_len = if name != 0 && opcode == Opcode::Recvmsg { 64_u64 } else { 0 };
    let header = [name, name_len, iov, n, control, 0, 0];
    op.sqe.addr = data + fixture::AUX2;
    op.memory.push((op.sqe.addr, header.iter().flat_map(|word| word.to_ne_bytes()).collect()));
    op.sqe.len = 1;
    op.sqe.op_flags = g.rng.pick(&[0, 0, 0, 0x40, 0x100, 2]);
    op.may_pend = true;
    simple(op, vec![writes(Resource::File(base))])
}

/// Splice or tee between a pipe and another file.
fn splice(g: &mut ScenarioGenerator) -> Draft {
    let is_tee = g.rng.percent(25);
    let mut op = g.op(if is_tee { Opcode::Tee } else { Opcode::Splice });
    let at = g.rng.below(4) as usize;
    let (from, to) = match g.rng.below(3) {
        0 if !is_tee => (100, fixture::PIPES[at] + 1),
        1 if !is_tee => (fixture::PIPES[at], 100),
        _ => (fixture::PIPES[at], fixture::PIPES[(at + 1) % 4] + 1),
    };
    op.sqe.splice_fd_in = from;
    op.sqe.fd = to;
    let file_offset = g.rng.pick(&[0, 500, u64::MAX]);
    if !is_tee {
        op.sqe.addr = if from == 100 { file_offset } else { u64::MAX };
        op.sqe.off = if to == 100 { file_offset } else { u64::MAX };
    }
    op.sqe.len = g.rng.pick(&[0, 10, 500, 3000]);
    // A worker runs these in the kernel, and may block there: so only with SPLICE_F_NONBLOCK.
    op.sqe.op_flags = g.rng.pick(&[2, 2, 2, 2, 3, 0x40]);
    simple(op, vec![writes(resource_of(from)), writes(resource_of(to))])
}

fn event(g: &mut ScenarioGenerator) -> Draft {
    let fd = g.rng.pick(&fixture::EVENTS);
    let opcode = g.rng.pick(&[Opcode::Read, Opcode::Write]);
    let mut op = g.op(opcode);
    op.sqe.fd = fd;
    op.sqe.addr = chunk(&op);
    op.sqe.len = g.rng.pick(&[8, 8, 8, 4, 16]);
    op.memory.push((chunk(&op), 5_u64.to_ne_bytes().to_vec()));
    op.may_pend = true;
    simple(op, vec![writes(Resource::File(fd))])
}

fn shutdown(g: &mut ScenarioGenerator) -> Draft {
    // For the end of datagrams the kernel lets a worker wait.
    let base = g.rng.pick(&fixture::SOCKETS[..3]);
    let mut op = g.op(Opcode::Shutdown);
    op.sqe.fd = g.rng.pick(&[base, base, base + 1, fixture::FRESH_SOCKETS[0], 100]);
    op.sqe.len = g.rng.pick(&[0, 1, 2, 3]);
    let touched = resource_of(op.sqe.fd);
    simple(op, vec![writes(touched)])
}

/// accept, connect, socket, bind, listen.
fn connections(g: &mut ScenarioGenerator) -> Draft {
    let opcode = g.rng.pick(&[Opcode::Accept, Opcode::Connect, Opcode::Connect, Opcode::Socket, Opcode::Listen, Opcode::Bind]);
    let mut op = g.op(opcode);
    let data = chunk(&op);
    let address = |name: &str| [&1_u16.to_ne_bytes()[..], name.as_bytes(), &[0]].concat();
    match opcode {
        Opcode::Accept => {
            op.sqe.fd = g.rng.pick(&[fixture::LISTENER, fixture::LISTENER, fixture::LISTENER, 120, 100]);
            op.sqe.op_flags = g.rng.pick(&[0, 0, 0x800, 0x80000, 1]);
            op.may_pend = true;
            op.result = ResultKind::Descriptor(g.next_adopted);
            g.next_adopted += 1;
        }
        Opcode::Connect | Opcode::Bind => {
            op.sqe.fd = g.rng.pick(&[fixture::FRESH_SOCKETS[0], fixture::FRESH_SOCKETS[1], 100]);
            let name = g.rng.pick(&["listener", "listener", "nobody"]);
            op.sqe.addr = data + fixture::AUX;
            op.memory.push((op.sqe.addr, address(name)));
            op.sqe.off = name.len() as u64 + 3;
        }
        Opcode::Socket => {
            op.sqe.fd = g.rng.pick(&[1, 1, 2, 77]);
            op.sqe.off = g.rng.pick(&[1, 2, 1 | 0x800, 99]);
            op.sqe.len = g.rng.pick(&[0, 0, 3]);
            op.result = ResultKind::Descriptor(g.next_adopted);
            g.next_adopted += 1;
        }
        _ => {
            op.sqe.fd = g.rng.pick(&[fixture::LISTENER, fixture::FRESH_SOCKETS[1], 100]);
            op.sqe.len = 16;
        }
    }
    // Names: bind creates one.
    let touches = vec![writes(Resource::File(fixture::LISTENER)), writes(Resource::Names)];
    simple(op, touches)
}

/// A multishot receive into buffers of a group.
fn multishot(g: &mut ScenarioGenerator) -> Draft {
    let base = g.rng.pick(&fixture::SOCKETS);
    let mut op = g.op(Opcode::Recv);
    op.sqe.fd = base;
    op.sqe.flags = sqe::BUFFER_SELECT;
    op.sqe.buf_index = g.rng.pick(&[fixture::LEGACY_GROUP, fixture::RING_GROUP, fixture::RING_GROUP]);
    op.sqe.ioprio = op_flags::RECV_MULTISHOT;
    op.sqe.len = if g.rng.percent(10) { 10 } else { 0 };
    op.may_pend = true;
    let touches = vec![writes(Resource::File(base)), writes(Resource::Group(op.sqe.buf_index))];
    Draft { op, touches, is_multishot: true }
}
