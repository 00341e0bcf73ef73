//! Corrupts one field of a valid SQE.

use super::draft::Draft;
use crate::fixture;
use conformance_rng::Rng;
use uringlet_abi::{Opcode, Sqe, op_flags};

/// Opcodes whose second structure (iovecs, header, path) the engine leaves to the system call: a
/// bad address gives the same errno, but neither ends a submission nor keeps a chain from starting.
fn is_read_late(opcode: u8) -> bool {
    use Opcode as O;
    let late = [
        O::Readv,
        O::Writev,
        O::ReadvFixed,
        O::WritevFixed,
        O::Sendmsg,
        O::Recvmsg,
        O::SendmsgZc,
        O::Openat,
        O::Openat2,
        O::Statx,
        O::Unlinkat,
        O::Renameat,
        O::Mkdirat,
        O::Symlinkat,
        O::Linkat,
    ];
    late.iter().any(|o| *o as u8 == opcode)
}

/// What Linux 6.18, the oracle, refuses, and later kernels and the engine take: a registered buffer
/// of a plain transfer, the user_data of a notification.
fn is_newer_than_oracle(s: &Sqe) -> bool {
    use Opcode as O;
    let is_one_of = |opcodes: [O; 2]| opcodes.iter().any(|opcode| *opcode as u8 == s.opcode);
    let has_fixed_buffer = is_one_of([O::Send, O::Recv]) && s.ioprio & op_flags::RECVSEND_FIXED_BUF != 0;
    has_fixed_buffer || (is_one_of([O::SendZc, O::SendmsgZc]) && s.addr3 != 0)
}

/// Only changes that access no other resource.
pub(super) fn corrupt_field(rng: &mut Rng, draft: &mut Draft) {
    let s = &mut draft.op.sqe;
    match rng.below(13) {
        0 => s.flags |= 0x80,
        1 => s.ioprio ^= 1 << rng.below(16),
        2 => s.fd = rng.pick(&[-1, fixture::CLOSED, 1 << 20, i32::MIN]),
        3 if !is_read_late(s.opcode) => {
            let is_timer = s.opcode == Opcode::LinkTimeout as u8;
            // The page holds zeros. A timer of no length races with what runs on another thread.
            let readable = if is_timer { fixture::UNMAPPED } else { fixture::READ_ONLY };
            s.addr = rng.pick(&[0, fixture::UNMAPPED, readable, 0xdead_0000_0000_0000]);
            if s.opcode == Opcode::Fallocate as u8 {
                // A length here, not an address: a length that fits would allocate the machine's
                // disk space.
                s.addr |= 1 << 63;
            }
        }
        // An event counter refuses a read of nothing; the engine does not ask it.
        4 if !draft.touches.iter().any(|access| access.is_of(&fixture::EVENTS)) => s.len = 0,
        5 => s.buf_index ^= 1 << rng.below(16),
        6 => s.personality = 3,
        7 => s.splice_fd_in ^= 1 << (8 + rng.below(24)),
        8 => s.addr3 = 5,
        9 => s.pad2 = 5,
        10 => s.opcode = rng.pick(&[98, 99, 200, 255]),
        11 => s.flags ^= 1 << 5,
        _ => s.flags |= 1,
    }
    if is_newer_than_oracle(s) {
        s.flags |= 0x80;
    }
}
