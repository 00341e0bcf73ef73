//! Requests of network servers: bundles, incremental buffers, multishot, notifications, messages
//! between rings.

use super::draft::{Access, Draft, Resource, chunk, iovecs, reads, resource_of, simple, writes};
use super::generator::{ScenarioGenerator, maybe_fixed};
use crate::fixture;
use crate::scenario::ResultKind;
use uringlet_abi::{FILE_INDEX_ALLOC, Opcode, op_flags, sqe};

/// One end of each kind of pair: streams, datagrams, TCP, UDP.
pub(super) const PAIRS: [i32; 5] = [120, 126, fixture::TCP, fixture::TCP, fixture::UDP];
const GROUPS: [u16; 4] = [fixture::RING_GROUP, fixture::INC_GROUP, fixture::LEGACY_GROUP, fixture::NO_GROUP];
const PEEK: u32 = 2;
const TRUNC: u32 = 0x20;
const DONTWAIT: u32 = 0x40;
const WAITALL: u32 = 0x100;
const NOSIGNAL: u32 = 0x4000;

pub(super) fn draft(g: &mut ScenarioGenerator) -> Draft {
    let mut draft = match g.rng.below(30) {
        0..6 => receive(g),
        6..8 => receive_on(g),
        8..13 => send(g),
        13..17 => zero_copy(g),
        17..19 => receive_messages(g),
        19 | 20 => read_on(g),
        21..23 => message(g),
        23 | 24 => accept_on(g),
        25 | 26 => pipe(g),
        27 | 28 => install(g),
        _ => epoll_wait(g),
    };
    maybe_fixed(g, &mut draft);
    draft
}

fn length(g: &mut ScenarioGenerator) -> u32 {
    g.rng.pick(&[0, 1, 10, 300, 512, 513, 1024, 2000, 5000])
}

fn select(draft: &mut Draft, group: u16) {
    draft.op.sqe.flags |= sqe::BUFFER_SELECT;
    draft.op.sqe.buf_index = group;
    draft.op.sqe.addr = 0;
    draft.touches.push(writes(Resource::Group(group)));
}

/// One receive, also into provided buffers, several at once.
fn receive(g: &mut ScenarioGenerator) -> Draft {
    let base = g.rng.pick(&PAIRS);
    let mut op = g.op(Opcode::Recv);
    op.sqe.fd = base + i32::from(g.rng.percent(5));
    op.sqe.addr = chunk(&op);
    op.sqe.len = length(g);
    op.may_pend = true;
    let mut draft = simple(op, vec![writes(Resource::File(base))]);
    if g.rng.percent(70) {
        let group = g.rng.pick(&GROUPS);
        select(&mut draft, group);
    }
    let s = &mut draft.op.sqe;
    // The number of buffers that an unlimited datagram fills depends on what earlier requests left
    // in the kernel's caches.
    if g.rng.percent(60) && (s.len > 0 || base != fixture::UDP && base != 126) {
        s.ioprio |= op_flags::RECVSEND_BUNDLE;
    }
    if g.rng.percent(25) {
        s.ioprio |= op_flags::RECVSEND_POLL_FIRST;
    }
    // With WAITALL the kernel loses the buffers of the later parts of a bundle.
    let waits = if s.ioprio & op_flags::RECVSEND_BUNDLE == 0 { WAITALL } else { NOSIGNAL };
    // With TRUNC the kernel counts discarded bytes as consumed.
    let truncates = if s.buf_index == fixture::INC_GROUP { PEEK } else { TRUNC };
    if g.rng.percent(30) {
        s.op_flags = g.rng.pick(&[PEEK, truncates, DONTWAIT, waits, NOSIGNAL]);
    }
    draft
}

/// A multishot receive.
fn receive_on(g: &mut ScenarioGenerator) -> Draft {
    let base = g.rng.pick(&PAIRS);
    let mut op = g.op(Opcode::Recv);
    op.sqe.fd = base;
    op.sqe.ioprio = op_flags::RECV_MULTISHOT | g.rng.pick(&[0, op_flags::RECVSEND_BUNDLE, op_flags::RECVSEND_POLL_FIRST]);
    op.sqe.len = g.rng.pick(&[0, 0, 0, 300, 600]);
    op.sqe.splice_fd_in = g.rng.pick(&[0, 0, 0, 700, 5]);
    op.may_pend = true;
    let mut draft = Draft { op, touches: vec![writes(Resource::File(base))], is_multishot: true };
    let group = g.rng.pick(&GROUPS);
    select(&mut draft, group);
    draft
}

fn send(g: &mut ScenarioGenerator) -> Draft {
    let base = g.rng.pick(&PAIRS);
    let mut op = g.op(Opcode::Send);
    op.sqe.fd = base + i32::from(!g.rng.percent(5));
    op.sqe.addr = chunk(&op);
    op.sqe.len = length(g);
    op.may_pend = true;
    let is_stream = base != fixture::UDP && base != 126;
    let mut draft = simple(op, vec![writes(Resource::File(base))]);
    // From a list of buffers the kernel sends more than the length asks for.
    if g.rng.percent(50) {
        let group = g.rng.pick(&[fixture::RING_GROUP, fixture::INC_GROUP]);
        select(&mut draft, group);
        draft.is_multishot = true;
        if is_stream && g.rng.percent(60) {
            draft.op.sqe.ioprio |= op_flags::RECVSEND_BUNDLE;
        }
    } else if g.rng.percent(25) {
        let address = chunk(&draft.op);
        iovecs(&mut draft.op, address, &[100, 0, 300]);
        draft.op.sqe.addr = address + fixture::AUX;
        draft.op.sqe.len = 3;
        draft.op.sqe.ioprio |= op_flags::SEND_VECTORIZED;
    }
    if g.rng.percent(20) {
        draft.op.sqe.ioprio |= op_flags::RECVSEND_POLL_FIRST;
    }
    if g.rng.percent(20) {
        draft.op.sqe.op_flags = g.rng.pick(&[DONTWAIT, WAITALL, NOSIGNAL]);
    }
    draft
}

/// Zero-copy sends with a notification.
fn zero_copy(g: &mut ScenarioGenerator) -> Draft {
    let base = g.rng.pick(&PAIRS);
    let is_message = g.rng.percent(40);
    let mut op = g.op(if is_message { Opcode::SendmsgZc } else { Opcode::SendZc });
    op.sqe.fd = g.rng.pick(&[base + 1, base + 1, base + 1, base + 1, base, 100]);
    let data = chunk(&op);
    op.sqe.addr = data;
    op.sqe.len = length(g);
    let mut touches = vec![writes(Resource::File(base)), writes(resource_of(op.sqe.fd))];
    if g.rng.percent(20) {
        op.sqe.ioprio |= op_flags::RECVSEND_FIXED_BUF;
        op.sqe.buf_index = g.rng.pick(&[0, 0, 1, 77]);
        op.sqe.addr = fixture::FIXED_BUFFERS + g.rng.pick(&[0, 100, fixture::FIXED_BUFFER_LEN - 50]);
        touches.push(writes(Resource::FixedBuffer(op.sqe.buf_index)));
    }
    for (flag, chance) in [(op_flags::SEND_ZC_REPORT_USAGE, 40), (op_flags::RECVSEND_POLL_FIRST, 15), (op_flags::RECVSEND_BUNDLE, 4)] {
        if g.rng.percent(chance) {
            op.sqe.ioprio |= flag;
        }
    }
    let whole = op.sqe.addr;
    if is_message {
        iovecs(&mut op, whole, &[50, 60]);
        let header = [0, 0, data + fixture::AUX, 2, 0, 0, 0_u64];
        op.sqe.addr = data + fixture::AUX2;
        op.memory.push((op.sqe.addr, header.iter().flat_map(|word| word.to_ne_bytes()).collect()));
        op.sqe.len = 1;
    } else if g.rng.percent(20) {
        iovecs(&mut op, whole, &[10, 0, 30]);
        op.sqe.addr = data + fixture::AUX;
        op.sqe.len = 3;
        op.sqe.ioprio |= op_flags::SEND_VECTORIZED;
    }
    op.sqe.op_flags = g.rng.pick(&[0, 0, 0, DONTWAIT, WAITALL]);
    op.may_pend = true;
    // Two completions each.
    Draft { op, touches, is_multishot: true }
}

/// Multishot RECVMSG: each buffer begins with the header's results.
fn receive_messages(g: &mut ScenarioGenerator) -> Draft {
    let base = g.rng.pick(&PAIRS);
    let mut op = g.op(Opcode::Recvmsg);
    op.sqe.fd = base;
    let name_len = if base == fixture::UDP || base == fixture::TCP { 0_u64 } else { g.rng.pick(&[0, 0, 64, 490, 600]) };
    let control_len = g.rng.pick(&[0, 0, 0, 32_u64]);
    let header = [0, name_len, 0, 0, 0, control_len, 0];
    op.sqe.addr = chunk(&op) + fixture::AUX2;
    op.memory.push((op.sqe.addr, header.iter().flat_map(|word| word.to_ne_bytes()).collect()));
    op.sqe.len = 1;
    op.sqe.ioprio = op_flags::RECV_MULTISHOT | g.rng.pick(&[0, 0, op_flags::RECVSEND_POLL_FIRST]);
    op.sqe.op_flags = g.rng.pick(&[0, 0, TRUNC]);
    op.may_pend = true;
    let address = op.sqe.addr;
    let mut draft = Draft { op, touches: vec![writes(Resource::File(base))], is_multishot: true };
    let group = g.rng.pick(&GROUPS);
    select(&mut draft, group);
    draft.op.sqe.addr = address;
    draft
}

fn read_on(g: &mut ScenarioGenerator) -> Draft {
    let base = g.rng.pick(&[110, 112, 118, 120, fixture::TCP, 126]);
    let mut op = g.op(Opcode::ReadMultishot);
    op.sqe.fd = g.rng.pick(&[base, base, base, base, base, base, base + 1, 100, 130]);
    op.sqe.off = g.rng.pick(&[u64::MAX, 0, 0]);
    op.may_pend = true;
    let touches = vec![writes(Resource::File(base)), writes(resource_of(op.sqe.fd))];
    let mut draft = Draft { op, touches, is_multishot: true };
    let group = g.rng.pick(&GROUPS);
    select(&mut draft, group);
    draft
}

/// A message with a CQE or a file, to this ring or the other one.
fn message(g: &mut ScenarioGenerator) -> Draft {
    let mut op = g.op(Opcode::MsgRing);
    op.sqe.fd = g.rng.pick(&[fixture::OWN_RING, fixture::OTHER_RING, fixture::OTHER_RING, 100]);
    op.sqe.off = 5000 + op.user_data();
    let mut touches: Vec<Access> = Vec::new();
    if g.rng.percent(40) {
        op.sqe.addr = 1;
        op.sqe.addr3 = g.rng.pick(&[0, 4, 8, 13, 40]);
        op.sqe.splice_fd_in = g.rng.pick(&[1, 2, 8, 9, FILE_INDEX_ALLOC as i32]);
        op.sqe.op_flags = g.rng.pick(&[0, 0, 1]);
        touches.push(writes(Resource::Table));
    } else {
        op.sqe.len = g.rng.pick(&[0, 5, -5_i32 as u32]);
        op.sqe.op_flags = g.rng.pick(&[0, 0, 2, 1]);
        if op.sqe.op_flags & 2 != 0 {
            op.sqe.splice_fd_in = g.rng.pick(&[0, 64, 77]);
        }
    }
    simple(op, touches)
}

fn accept_on(g: &mut ScenarioGenerator) -> Draft {
    let mut op = g.op(Opcode::Accept);
    op.sqe.fd = g.rng.pick(&[fixture::LISTENER, fixture::LISTENER, fixture::LISTENER, 120]);
    op.sqe.ioprio = op_flags::ACCEPT_MULTISHOT | g.rng.pick(&[0, 0, 2, 4]);
    op.may_pend = true;
    let mut touches = vec![writes(Resource::File(fixture::LISTENER)), writes(Resource::Names)];
    if g.rng.percent(40) {
        op.sqe.splice_fd_in = g.rng.pick(&[FILE_INDEX_ALLOC as i32, FILE_INDEX_ALLOC as i32, 15]);
        touches.push(writes(Resource::Table));
    } else {
        op.result = ResultKind::Descriptor(g.next_adopted);
        g.next_adopted += 1;
    }
    Draft { op, touches, is_multishot: true }
}

fn pipe(g: &mut ScenarioGenerator) -> Draft {
    let mut op = g.op(Opcode::Pipe);
    op.sqe.addr = chunk(&op);
    op.sqe.op_flags = g.rng.pick(&[0, 0o4000, 0o2_000_000, 0o40_000, 1]);
    let mut touches = vec![];
    if g.rng.percent(50) {
        op.sqe.splice_fd_in = g.rng.pick(&[FILE_INDEX_ALLOC as i32, FILE_INDEX_ALLOC as i32, 14, 15, 40]);
        touches.push(writes(Resource::Table));
    } else {
        op.result = ResultKind::Pipe(op.sqe.addr, g.next_adopted);
        g.next_adopted += 2;
    }
    simple(op, touches)
}

fn install(g: &mut ScenarioGenerator) -> Draft {
    let mut op = g.op(Opcode::FixedFdInstall);
    op.sqe.fd = g.rng.pick(&[0, 4, 8, 13, 15, 40]);
    if !g.rng.percent(10) {
        op.sqe.flags |= sqe::FIXED_FILE;
    }
    op.sqe.op_flags = g.rng.pick(&[0, 0, 1, 2]);
    op.result = ResultKind::Descriptor(g.next_adopted);
    g.next_adopted += 1;
    simple(op, vec![reads(Resource::Table)])
}

fn epoll_wait(g: &mut ScenarioGenerator) -> Draft {
    let mut op = g.op(Opcode::EpollWait);
    op.sqe.fd = g.rng.pick(&[fixture::EPOLL, fixture::EPOLL, fixture::EPOLL, fixture::EPOLL, 100, 110]);
    op.sqe.addr = chunk(&op);
    op.sqe.len = g.rng.pick(&[1, 4, 4, 0]);
    op.may_pend = true;
    let mut touches = vec![writes(Resource::File(fixture::EPOLL))];
    // Files that may be in the epoll set.
    touches.extend([110, 112, 120, 122, 130].map(|fd| reads(Resource::File(fd))));
    simple(op, touches)
}

/// One pair, for writes to its far end.
pub(super) fn pair(g: &mut ScenarioGenerator) -> i32 {
    g.rng.pick(&PAIRS)
}
