//! Timeouts that expire at once or never, and cancels.

use super::draft::{Access, Draft, Resource, chunk, reads, resource_of, simple, timespec, writes};
use super::generator::ScenarioGenerator;
use crate::fixture;
use uringlet_abi::{Opcode, op_flags, sqe};

const FOREVER: i64 = 1_000_000_000_000;

pub(super) fn draft(g: &mut ScenarioGenerator) -> Draft {
    match g.rng.below(10) {
        0..5 => timeout(g),
        5..9 => change(g),
        _ => g.link_timeout(false),
    }
}

fn timeout(g: &mut ScenarioGenerator) -> Draft {
    let mut op = g.op(Opcode::Timeout);
    let ns = g.rng.pick(&[0, 1000, 0, FOREVER, FOREVER, FOREVER, FOREVER, FOREVER, FOREVER, -5]);
    op.sqe.addr = chunk(&op) + fixture::AUX;
    op.memory.push((op.sqe.addr, timespec(ns)));
    op.sqe.len = g.rng.pick(&[1, 1, 1, 1, 1, 1, 1, 1, 1, 2]);
    op.sqe.op_flags = match g.rng.below(20) {
        0 => op_flags::TIMEOUT_BOOTTIME,
        1 => op_flags::TIMEOUT_ETIME_SUCCESS,
        2 if ns <= 0 => op_flags::TIMEOUT_ABS | op_flags::TIMEOUT_REALTIME,
        3 => op_flags::TIMEOUT_BOOTTIME | op_flags::TIMEOUT_REALTIME,
        4 if ns == FOREVER => op_flags::TIMEOUT_MULTISHOT,
        5 => 1 << 12,
        _ => 0,
    };
    op.may_pend = true;
    // A short timeout may expire before the next request looks for it.
    let touches = if ns <= 1000 { vec![writes(Resource::Request(op.user_data()))] } else { vec![] };
    let is_multishot = op.sqe.op_flags & op_flags::TIMEOUT_MULTISHOT != 0;
    Draft { op, touches, is_multishot }
}

/// Removes or updates a timeout.
fn change(g: &mut ScenarioGenerator) -> Draft {
    let mut op = g.op(Opcode::TimeoutRemove);
    let target = g.target(Some(Opcode::Timeout));
    op.sqe.addr = target;
    // The number of expirations of a multishot timeout depends on timing.
    let is_multishot = g.pending.iter().any(|p| p.is_multishot && p.user_data.contains(&target));
    if g.rng.percent(50) && !is_multishot {
        op.sqe.op_flags = op_flags::TIMEOUT_UPDATE;
        op.sqe.op_flags |= g.rng.pick(&[0, 0, 0, op_flags::LINK_TIMEOUT_UPDATE]);
        if g.rng.percent(5) {
            op.sqe.op_flags = op_flags::LINK_TIMEOUT_UPDATE;
        }
        op.sqe.off = chunk(&op) + fixture::AUX;
        let ns = g.rng.pick(&[0, FOREVER]);
        op.memory.push((op.sqe.off, timespec(ns)));
    }
    let touches = cancels(g, target);
    simple(op, touches)
}

impl ScenarioGenerator {
    /// A timeout for the previous request: short only if that one is sure to wait.
    pub(super) fn link_timeout(&mut self, may_be_short: bool) -> Draft {
        let mut op = self.op(Opcode::LinkTimeout);
        let ns = if may_be_short && self.rng.percent(40) { 1_000_000_000_000 } else { FOREVER };
        op.sqe.addr = chunk(&op) + fixture::AUX;
        op.memory.push((op.sqe.addr, timespec(ns)));
        op.sqe.len = 1;
        simple(op, vec![])
    }
}

/// The accesses of the target, and the set of pending requests.
fn cancels(g: &ScenarioGenerator, target: u64) -> Vec<Access> {
    let mut touches = g.touches_of(target);
    touches.push(writes(Resource::Pending));
    touches
}

pub(super) fn cancel(g: &mut ScenarioGenerator) -> Draft {
    let mut op = g.op(Opcode::AsyncCancel);
    let mut touches = vec![writes(Resource::Pending)];
    match g.rng.below(10) {
        0..5 => {
            let target = g.target(None);
            op.sqe.addr = target;
            op.sqe.op_flags = g.rng.pick(&[0, 0, op_flags::CANCEL_ALL, op_flags::CANCEL_USERDATA]);
            touches = cancels(g, target);
        }
        5..8 => {
            let fd = g.rng.pick(&[110, 112, 114, 116, 120, 122, 124, 126, fixture::CLOSED]);
            op.sqe.fd = fd;
            op.sqe.op_flags = op_flags::CANCEL_FD | g.rng.pick(&[0, op_flags::CANCEL_ALL]);
            touches.push(writes(resource_of(fd)));
        }
        8 => {
            // By opcode; there may be no such request.
            op.sqe.op_flags = op_flags::CANCEL_OP | op_flags::CANCEL_ALL;
            op.sqe.len = Opcode::Accept as u32;
            touches.push(writes(Resource::File(fixture::LISTENER)));
        }
        _ => {
            op.sqe.op_flags =
                g.rng.pick(&[1 << 9, op_flags::CANCEL_FD | op_flags::CANCEL_ANY, op_flags::CANCEL_FD | op_flags::CANCEL_FD_FIXED]);
            op.sqe.fd = 15;
            touches.push(reads(Resource::Table));
        }
    }
    if g.rng.percent(3) {
        op.sqe.flags |= sqe::BUFFER_SELECT;
    }
    simple(op, touches)
}
