//! Polls, NOPs, provided buffers, registered files, and calls of io_uring_register(2).

use super::draft::{Draft, Resource, chunk, reads, resource_of, simple, writes};
use super::generator::{ScenarioGenerator, maybe_fixed};
use crate::fixture;
use crate::fixture::provided;
use crate::scenario::ScenarioStep;
use uringlet_abi::{Opcode, op_flags, register as reg, sqe};

const POLLIN: u32 = 1;
const POLLOUT: u32 = 4;
const POLLRDHUP: u32 = 0x2000;

pub(super) fn poll(g: &mut ScenarioGenerator) -> Draft {
    if g.rng.percent(30) {
        return change_poll(g);
    }
    let mut op = g.op(Opcode::PollAdd);
    let base = g.rng.pick(&[110, 112, 114, 116, 118, 120, 122, 124, 126, 130, 100, fixture::NULL, fixture::LISTENER]);
    let is_pair = (110..130).contains(&base);
    op.sqe.fd = base + if is_pair { g.rng.below(2) as i32 } else { 0 };
    op.sqe.op_flags = g.rng.pick(&[POLLIN, POLLIN, POLLIN, POLLOUT, POLLIN | POLLOUT, POLLRDHUP, 0]);
    let is_multishot = g.rng.percent(25);
    if is_multishot {
        // Polled for both, the kernel reports only the new event, and epoll all current ones.
        op.sqe.op_flags = g.rng.pick(&[POLLIN, POLLOUT]);
        op.sqe.len = op_flags::POLL_ADD_MULTI;
    }
    op.may_pend = true;
    // A multishot poll reports every change; a single one only reads the state.
    let touch = resource_of(op.sqe.fd);
    let mut draft = Draft { op, touches: vec![if is_multishot { writes(touch) } else { reads(touch) }], is_multishot };
    maybe_fixed(g, &mut draft);
    draft
}

fn change_poll(g: &mut ScenarioGenerator) -> Draft {
    let mut op = g.op(Opcode::PollRemove);
    let target = g.target(Some(Opcode::PollAdd));
    op.sqe.addr = target;
    if g.rng.percent(30) {
        op.sqe.len = op_flags::POLL_UPDATE_EVENTS;
        op.sqe.op_flags = g.rng.pick(&[POLLIN, POLLOUT]);
    }
    let mut touches = g.touches_of(target);
    touches.push(writes(Resource::Pending));
    simple(op, touches)
}

pub(super) fn draft(g: &mut ScenarioGenerator) -> Draft {
    match g.rng.below(10) {
        0..4 => nop(g),
        4..7 => buffers(g),
        7 | 8 => files_update(g),
        _ => epoll(g),
    }
}

fn nop(g: &mut ScenarioGenerator) -> Draft {
    let mut op = g.op(Opcode::Nop);
    let mut touches = vec![];
    match g.rng.below(8) {
        0 | 1 => {
            op.sqe.op_flags = op_flags::NOP_INJECT_RESULT;
            op.sqe.len = g.rng.pick(&[5, u32::MAX - 4, u32::MAX - 124]);
        }
        2 => {
            op.sqe.op_flags = op_flags::NOP_FILE | op_flags::NOP_FIXED_FILE;
            op.sqe.fd = g.rng.pick(&[0, 13, 40]);
            touches.push(reads(Resource::Table));
        }
        3 => {
            op.sqe.op_flags = op_flags::NOP_FILE;
            op.sqe.fd = g.rng.pick(&[100, fixture::CLOSED]);
        }
        4 => {
            op.sqe.op_flags = op_flags::NOP_FIXED_BUFFER;
            op.sqe.buf_index = g.rng.pick(&[0, 2, 3, 77]);
        }
        5 => op.sqe.op_flags = g.rng.pick(&[op_flags::NOP_TW, 1 << 20]),
        _ => {}
    }
    simple(op, touches)
}

fn buffers(g: &mut ScenarioGenerator) -> Draft {
    let is_remove = g.rng.percent(25);
    let mut op = g.op(if is_remove { Opcode::RemoveBuffers } else { Opcode::ProvideBuffers });
    let group = g.rng.pick(&[fixture::LEGACY_GROUP, fixture::LEGACY_GROUP, fixture::LEGACY_GROUP, fixture::RING_GROUP, fixture::NO_GROUP]);
    op.sqe.buf_index = group;
    op.sqe.fd = g.rng.pick(&[1, 1, 1, 2, 2, 3, 0, -1]);
    if !is_remove {
        let bid = g.rng.below(8);
        op.sqe.addr = provided(group, bid as u16);
        op.sqe.len = g.rng.pick(&[512, 512, 512, 0, 100]);
        op.sqe.off = g.rng.pick(&[bid, bid, bid, bid, bid, bid, 65_535, 65_536]);
    }
    simple(op, vec![writes(Resource::Group(group))])
}

fn files_update(g: &mut ScenarioGenerator) -> Draft {
    let mut op = g.op(Opcode::FilesUpdate);
    let fds: &[i32] = g.rng.pick(&[&[-1][..], &[100, 114], &[fixture::CLOSED], &[-2, 100], &[-1, -1, -1]]);
    op.sqe.addr = chunk(&op) + fixture::AUX;
    op.memory.push((op.sqe.addr, fds.iter().flat_map(|fd| fd.to_ne_bytes()).collect()));
    op.sqe.len = g.rng.pick(&[fds.len() as u32, fds.len() as u32, fds.len() as u32, 0]);
    op.sqe.off = g.rng.pick(&[12, 13, 13, 14, 14, 15, 16, 40]);
    if g.rng.percent(5) {
        op.sqe.flags |= sqe::FIXED_FILE;
    }
    simple(op, vec![writes(Resource::Table)])
}

fn epoll(g: &mut ScenarioGenerator) -> Draft {
    let mut op = g.op(Opcode::EpollCtl);
    op.sqe.fd = g.rng.pick(&[fixture::EPOLL, fixture::EPOLL, fixture::EPOLL, 100]);
    op.sqe.len = g.rng.pick(&[1, 1, 1, 2, 3, 9]);
    op.sqe.off = g.rng.pick(&[110, 112, 120, 122, 130, 100, fixture::CLOSED as u64]);
    op.sqe.addr = chunk(&op) + fixture::AUX;
    op.memory.push((op.sqe.addr, [&1_u32.to_ne_bytes()[..], &5_u64.to_ne_bytes()].concat()));
    simple(op, vec![writes(Resource::File(fixture::EPOLL))])
}

fn words32(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// A call of io_uring_register(2), or an io_uring_enter(2) without submission.
pub(super) fn register(g: &mut ScenarioGenerator) -> ScenarioStep {
    // Behind all chunks.
    let arg = fixture::ARENA + (3 << 20);
    let call = |opcode, memory: Vec<u8>, nr_args| ScenarioStep::Register { opcode, arg, memory, nr_args };
    let update = |off: u32, fds: u64| [words32(&[off, 0]), fds.to_ne_bytes().to_vec()].concat();
    match g.rng.below(12) {
        0 => call(reg::BUFFERS, vec![0; 16], 1),
        1 => call(reg::FILES, words32(&[100]), 1),
        2 => call(reg::FILES_UPDATE, [update(14, arg + 16), words32(&[100, u32::MAX])].concat(), g.rng.pick(&[2, 1, 0, 9])),
        3 => call(reg::FILES_UPDATE, [update(15, fixture::UNMAPPED), words32(&[100])].concat(), 1),
        4 => ScenarioStep::Register { opcode: reg::PROBE, arg, memory: vec![0; 16 + 256 * 8], nr_args: g.rng.pick(&[256, 300]) },
        5 => call(g.rng.pick(&[99, 4000]), vec![0; 64], 1),
        6 => ScenarioStep::Register { opcode: reg::UNREGISTER_EVENTFD, arg: 0, memory: vec![], nr_args: 0 },
        7 => call(reg::EVENTFD, words32(&[g.rng.pick(&[fixture::NOTIFIED as u32, 100, 199])]), 1),
        8 => call(reg::IOWQ_MAX_WORKERS, words32(&[0, 0]), g.rng.pick(&[2, 3])),
        9 => {
            // SYNC_CANCEL of a request that does not exist.
            let words = [words32(&[7777, 0, u32::MAX, 0]), vec![0xff; 16], vec![0; 32]].concat();
            call(reg::SYNC_CANCEL, words, 1)
        }
        _ => enter(g, arg),
    }
}

fn enter(g: &mut ScenarioGenerator, arg: u64) -> ScenarioStep {
    let (flags, arg, memory, arg_len) = match g.rng.below(6) {
        0 => (1 << 20, 0, vec![], 0),
        1 => (1, 0, vec![], 0),
        // EXT_ARG of a wrong length, with a wrong timespec, from a wrong address.
        2 => (9, arg, vec![0; 24], 16),
        3 => (9, arg, [0_u64, 8, fixture::UNMAPPED].iter().flat_map(|w| w.to_ne_bytes()).collect(), 24),
        4 => (9, fixture::UNMAPPED, vec![], 24),
        _ => (9, arg, [0_u64, 0, arg + 24, 0, 0].iter().flat_map(|w| w.to_ne_bytes()).collect(), 24),
    };
    ScenarioStep::Enter { min_complete: g.rng.pick(&[0, 1, 5]) * u32::from(flags == 9), flags, arg, memory, arg_len }
}
