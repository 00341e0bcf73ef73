//! What Linux 6.7 to 6.18 brought: commands to sockets, CQEs of both sizes, iovecs in registered
//! buffers, futexes, children, polls that are updated or level-triggered.

use super::draft::{Draft, Resource, chunk, reads, resource_of, simple, writes};
use super::generator::{ScenarioGenerator, maybe_fixed};
use super::network::PAIRS;
use crate::fixture;
use uringlet_abi::{Opcode, op_flags, setup, uring_cmd};

const SOL_SOCKET: u64 = 1;
const SOL_TCP: u64 = 6;
/// FUTEX2_SIZE_U32.
const FUTEX_32: u16 = 2;
/// FUTEX_BITSET_MATCH_ANY.
const ANY_BITS: u64 = 0xffff_ffff;

pub(super) fn draft(g: &mut ScenarioGenerator) -> Draft {
    let mut draft = match g.rng.below(24) {
        0..7 => socket_command(g),
        7..11 => nop(g),
        11..15 => transfer(g),
        15..18 => futex(g),
        18 => wait_for_child(g),
        19 => other_command(g),
        20 | 21 => poll(g),
        _ => cancel(g),
    };
    maybe_fixed(g, &mut draft);
    // The first two are registered; requests of one personality share nothing.
    if g.rng.percent(12) {
        draft.op.sqe.personality = g.rng.pick(&[1, 1, 2, 2, 5]);
    }
    draft
}

/// `SOCKET_URING_OP_*`.
fn socket_command(g: &mut ScenarioGenerator) -> Draft {
    let base = g.rng.pick(&PAIRS);
    let mut op = g.op(Opcode::UringCmd);
    op.sqe.fd = base + i32::from(g.rng.percent(30));
    let command = g.rng.pick(&[
        uring_cmd::SIOCINQ,
        uring_cmd::SIOCINQ,
        uring_cmd::SIOCOUTQ,
        uring_cmd::GETSOCKOPT,
        uring_cmd::GETSOCKOPT,
        uring_cmd::SETSOCKOPT,
        uring_cmd::SETSOCKOPT,
        77,
    ]);
    // What a TCP peer has not acknowledged depends on time.
    let command = if command == uring_cmd::SIOCOUTQ && base == fixture::TCP { uring_cmd::SIOCINQ } else { command };
    op.sqe.off = u64::from(command);
    let value = chunk(&op) + fixture::AUX;
    if command == uring_cmd::GETSOCKOPT {
        // REUSEADDR, TYPE, ERROR, RCVBUF, KEEPALIVE, LINGER, ACCEPTCONN, PROTOCOL, DOMAIN, unknown.
        let name = g.rng.pick(&[2_u64, 3, 4, 8, 9, 13, 30, 38, 39, 999]);
        let level = g.rng.pick(&[SOL_SOCKET, SOL_SOCKET, SOL_SOCKET, SOL_TCP, 99]);
        op.sqe.addr = level | name << 32;
    } else if command == uring_cmd::SETSOCKOPT {
        // REUSEADDR, KEEPALIVE, PRIORITY, LINGER, PASSCRED, unknown; TCP_NODELAY.
        let (level, name) = g.rng.pick(&[
            (SOL_SOCKET, 2_u64),
            (SOL_SOCKET, 9),
            (SOL_SOCKET, 12),
            (SOL_SOCKET, 13),
            (SOL_SOCKET, 16),
            (SOL_SOCKET, 999),
            (SOL_TCP, 1),
            (99, 1),
        ]);
        op.sqe.addr = level | name << 32;
        op.memory.push((value, [1_u32.to_ne_bytes(), 0_u32.to_ne_bytes()].concat()));
    }
    if matches!(command, uring_cmd::GETSOCKOPT | uring_cmd::SETSOCKOPT) {
        op.sqe.addr3 = g.rng.pick(&[value, value, value, value, value, fixture::UNMAPPED]);
        op.sqe.splice_fd_in = g.rng.pick(&[4, 4, 4, 8, 8, 2, 0, -1]);
    }
    simple(op, vec![writes(Resource::File(base))])
}

/// Commands to files that take none, or another one.
fn other_command(g: &mut ScenarioGenerator) -> Draft {
    let mut op = g.op(Opcode::UringCmd);
    op.sqe.fd = g.rng.pick(&[fixture::NULL, fixture::NULL, fixture::ZERO, 100, 110, fixture::EPOLL, fixture::DIRECTORY]);
    op.sqe.off = g.rng.pick(&[0, 1, 0x1200]);
    op.sqe.op_flags = g.rng.pick(&[0, 0, 0, uring_cmd::FIXED, 1 << 7]);
    let touched = resource_of(op.sqe.fd);
    simple(op, vec![reads(touched)])
}

/// NOPs with a result, and with a CQE of 32 bytes.
fn nop(g: &mut ScenarioGenerator) -> Draft {
    let mut op = g.op(Opcode::Nop);
    let mut touches = vec![];
    for (flag, chance) in [
        (op_flags::NOP_CQE32, 60),
        (op_flags::NOP_INJECT_RESULT, 40),
        (op_flags::NOP_TW, 20),
        (op_flags::NOP_FIXED_BUFFER, 10),
        (op_flags::NOP_FILE, 10),
    ] {
        if g.rng.percent(chance) {
            op.sqe.op_flags |= flag;
        }
    }
    op.sqe.len = g.rng.pick(&[0, 5, u32::MAX - 4, u32::MAX - 124, 1 << 30]);
    op.sqe.buf_index = g.rng.pick(&[0, 0, 2, 3, 77]);
    op.sqe.off = g.rng.next_u64();
    op.sqe.addr = g.rng.next_u64();
    if op.sqe.op_flags & op_flags::NOP_FILE != 0 {
        op.sqe.fd = g.rng.pick(&[100, 0, fixture::CLOSED]);
        if g.rng.percent(50) {
            op.sqe.op_flags |= op_flags::NOP_FIXED_FILE;
            op.sqe.fd = g.rng.pick(&[0, 13, 40]);
            touches.push(reads(Resource::Table));
        }
    }
    simple(op, touches)
}

/// READV_FIXED and WRITEV_FIXED on files, pipes and sockets.
fn transfer(g: &mut ScenarioGenerator) -> Draft {
    let is_write = g.rng.percent(50);
    let mut op = g.op(if is_write { Opcode::WritevFixed } else { Opcode::ReadvFixed });
    let base = g.rng.pick(&[100, 100, 101, 102, fixture::DIRECT_FILE, 110, 120]);
    op.sqe.fd = base + i32::from(is_write && base >= 110);
    let is_stream = base >= 110;
    op.may_pend = is_stream;
    op.sqe.off = if is_stream { u64::MAX } else { g.rng.pick(&[0, 100, 512, 4096, 8192]) };
    let index = g.rng.pick(&[0_u16, 1, 2]);
    op.sqe.buf_index = g.rng.pick(&[index, index, index, index, index, index, 3, 77]);
    let start = fixture::FIXED_BUFFERS + u64::from(index) * fixture::FIXED_BUFFER_LEN;
    let (unit, end) = (if base == fixture::DIRECT_FILE { 512 } else { 100 }, fixture::FIXED_BUFFER_LEN);
    // In order, empty, touching the end, beyond it, none.
    let vectors: &[(u64, u64)] = match g.rng.below(7) {
        0 | 1 => &[(0, 1), (2, 2)],
        2 | 3 => &[(4, 3)],
        4 => &[(0, 1), (1, 0), (3, 1)],
        5 => &[(0, 1), (1 << 20, 1)],
        _ => &[],
    };
    let mut bytes = Vec::new();
    for (at, len) in vectors {
        let at = if g.rng.percent(5) { end - unit } else { at * unit };
        bytes.extend((start + at).to_ne_bytes());
        bytes.extend((len * unit).to_ne_bytes());
    }
    op.sqe.addr = chunk(&op) + fixture::AUX;
    op.memory.push((op.sqe.addr, bytes));
    op.sqe.len = u32::try_from(vectors.len()).expect("a few");
    // The same memory may be registered under several numbers.
    let buffers = [0_u16, 1, 2].into_iter().map(|n| writes(Resource::FixedBuffer(n)));
    let touches = buffers.chain([writes(resource_of(op.sqe.fd))]).collect();
    simple(op, touches)
}

fn futex(g: &mut ScenarioGenerator) -> Draft {
    let word = g.rng.below(3).min(1);
    let address = fixture::FUTEXES + word * 8;
    let touches = vec![writes(Resource::Futex(word))];
    // A cancel of several futex waits counts them as one in Linux 6.18.
    let waits = !std::mem::replace(&mut g.has_futex_wait, true);
    let opcode = if waits { g.rng.pick(&[Opcode::FutexWait, Opcode::FutexWaitv]) } else { Opcode::FutexWake };
    let mut op = g.op(opcode);
    // Not private ones: a wait that began before the process's first thread (a worker) is not found
    // by later wakes in Linux 6.18.
    let flags = g.rng.pick(&[FUTEX_32, FUTEX_32, FUTEX_32, FUTEX_32, 3, 1 << 10]);
    // The words stay 0: another value answers EAGAIN.
    let value = g.rng.pick(&[0, 0, 0, 0, 7]);
    op.sqe.addr = g.rng.pick(&[address, address, address, address, address, address, address + 1, fixture::UNMAPPED]);
    op.sqe.off = value;
    op.sqe.fd = i32::from(flags);
    op.sqe.addr3 = g.rng.pick(&[ANY_BITS, ANY_BITS, ANY_BITS, 1, 0]);
    match opcode {
        Opcode::FutexWake => op.sqe.off = g.rng.pick(&[1, 1, 1, 5, 0]),
        Opcode::FutexWait => op.may_pend = true,
        _ => {
            let vector = [value, op.sqe.addr, u64::from(flags)];
            (op.sqe.fd, op.sqe.off, op.sqe.addr3) = (0, 0, 0);
            op.sqe.addr = chunk(&op) + fixture::AUX;
            op.memory.push((op.sqe.addr, vector.iter().flat_map(|word| word.to_ne_bytes()).collect()));
            op.sqe.len = g.rng.pick(&[1, 1, 1, 0, 129]);
            op.may_pend = true;
        }
    }
    simple(op, touches)
}

/// WAITID, in a process without children.
fn wait_for_child(g: &mut ScenarioGenerator) -> Draft {
    let mut op = g.op(Opcode::Waitid);
    // P_ALL, P_PID, P_PIDFD, unknown.
    op.sqe.len = g.rng.pick(&[0, 1, 3, 9]);
    op.sqe.fd = g.rng.pick(&[1, 100, 0]);
    // WEXITED, with WNOHANG, with WNOWAIT, none.
    op.sqe.splice_fd_in = g.rng.pick(&[4, 5, 0x0100_0004, 0]);
    op.sqe.off = g.rng.pick(&[0, chunk(&op), fixture::UNMAPPED]);
    op.sqe.op_flags = g.rng.pick(&[0, 0, 0, 0, 1]);
    simple(op, vec![])
}

const POLLIN: u32 = 1;

/// Polls of one level, and changes of a poll's user_data.
fn poll(g: &mut ScenarioGenerator) -> Draft {
    if g.rng.percent(40) {
        let mut op = g.op(Opcode::PollRemove);
        let target = g.target(Some(Opcode::PollAdd));
        op.sqe.addr = target;
        op.sqe.off = target;
        op.sqe.len = g.rng.pick(&[op_flags::POLL_UPDATE_EVENTS, op_flags::POLL_UPDATE_USER_DATA, op_flags::POLL_ADD_LEVEL, 1 << 9]);
        op.sqe.op_flags = POLLIN;
        let mut touches = g.touches_of(target);
        touches.push(writes(Resource::Pending));
        return simple(op, touches);
    }
    let mut op = g.op(Opcode::PollAdd);
    op.sqe.fd = g.rng.pick(&[110, 112, 120, fixture::TCP]);
    op.sqe.op_flags = POLLIN;
    op.sqe.len = g.rng.pick(&[0, op_flags::POLL_ADD_MULTI | op_flags::POLL_ADD_LEVEL, op_flags::POLL_ADD_LEVEL, 1 << 9]);
    op.may_pend = true;
    let touched = resource_of(op.sqe.fd);
    simple(op, vec![writes(touched)])
}

/// Cancels by what a request is.
fn cancel(g: &mut ScenarioGenerator) -> Draft {
    let mut op = g.op(Opcode::AsyncCancel);
    let mut touches = vec![writes(Resource::Pending)];
    let fd = g.rng.pick(&[110, 112, 120, fixture::TCP]);
    op.sqe.fd = fd;
    op.sqe.len = g.rng.pick(&[Opcode::Recv as u32, Opcode::FutexWait as u32, 200]);
    op.sqe.op_flags = op_flags::CANCEL_FD | g.rng.pick(&[op_flags::CANCEL_OP, op_flags::CANCEL_OP | op_flags::CANCEL_ALL, 1 << 10]);
    touches.push(writes(resource_of(fd)));
    simple(op, touches)
}

/// The ring's flags that are recent.
pub(super) fn setup_flags(g: &mut ScenarioGenerator, flags: u32) -> u32 {
    let mut flags = flags;
    if g.rng.percent(50) {
        flags = flags & !setup::CQE32 | setup::CQE_MIXED;
    }
    if g.rng.percent(5) {
        flags |= setup::CLAMP;
    }
    if g.rng.percent(40) {
        flags |= setup::R_DISABLED;
    }
    flags
}
