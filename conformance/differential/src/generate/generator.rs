//! The state of the generator.

use super::draft::{Access, Draft, Resource, reads, writes};
use crate::fixture;
use crate::scenario::{ResultKind, ScenarioKind, ScenarioOp};
use conformance_rng::Rng;
use uringlet_abi::{Opcode, Sqe, op_flags, sqe};

/// Requests that may wait.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) touches: Vec<Access>,
    pub(super) user_data: Vec<u64>,
    pub(super) is_multishot: bool,
}

pub(super) struct ScenarioGenerator {
    pub(super) rng: Rng,
    pub(super) kind: ScenarioKind,
    pub(super) next_id: u64,
    pub(super) pending: Vec<Pending>,
    /// Accesses of the current batch.
    pub(super) touched: Vec<Access>,
    /// A drained request may block everything behind it.
    pub(super) is_drain_blocked: bool,
    /// A request has drained: the kernel punts the later ones to workers.
    pub(super) has_drained: bool,
    pub(super) next_adopted: i32,
    pub(super) has_futex_wait: bool,
    /// A request has used several buffers.
    pub(super) has_vectors: bool,
    /// Opcode and user_data of requests that may be pending.
    pub(super) may_pend: Vec<(u8, u64)>,
}

impl ScenarioGenerator {
    /// Whether most requests that are not of the kind's own are those of network servers.
    pub(super) fn is_net(&self) -> bool {
        self.kind != ScenarioKind::Files
    }

    pub(super) fn is_recent(&self) -> bool {
        self.kind == ScenarioKind::Recent
    }

    /// How many buffers a bundle without a length takes depends on the memory that the kernel uses
    /// again for it: that of a request with several buffers, or none.
    pub(super) fn limit_bundle(&mut self, op: &mut ScenarioOp) {
        let s = &mut op.sqe;
        let is_bundle = s.ioprio & op_flags::RECVSEND_BUNDLE != 0 && s.flags & sqe::BUFFER_SELECT != 0;
        if is_bundle && s.opcode == Opcode::Recv as u8 && s.len == 0 && self.has_vectors {
            s.len = 2000;
        }
        let is_message = [Opcode::Sendmsg, Opcode::SendmsgZc, Opcode::Recvmsg].iter().any(|opcode| s.opcode == *opcode as u8);
        let is_send = [Opcode::Send, Opcode::SendZc].iter().any(|opcode| s.opcode == *opcode as u8);
        self.has_vectors |= is_bundle || is_message || is_send && s.ioprio & op_flags::SEND_VECTORIZED != 0;
    }

    /// A new request. Its user_data determines its chunk of the arena.
    pub(super) fn op(&mut self, opcode: Opcode) -> ScenarioOp {
        self.next_id += 1;
        ScenarioOp {
            sqe: Sqe { opcode: opcode as u8, user_data: self.next_id, ..Sqe::default() },
            memory: Vec::new(),
            result: ResultKind::Number,
            may_pend: false,
            chain: 0,
        }
    }

    /// The user_data of a request that may be pending, preferably of this opcode; sometimes of
    /// none.
    pub(super) fn target(&mut self, opcode: Option<Opcode>) -> u64 {
        let fitting: Vec<u64> =
            self.may_pend.iter().filter(|(code, _)| opcode.is_some_and(|o| o as u8 == *code)).map(|(_, id)| *id).collect();
        if !fitting.is_empty() && self.rng.percent(75) {
            return self.rng.pick(&fitting);
        }
        if self.pending.is_empty() || self.rng.percent(15) {
            return 7777;
        }
        let at = self.rng.below(self.pending.len() as u64) as usize;
        let entity = &self.pending[at];
        let which = self.rng.below(entity.user_data.len() as u64) as usize;
        entity.user_data[which]
    }

    /// The accesses of a request that changes another one: those of its target.
    pub(super) fn touches_of(&self, user_data: u64) -> Vec<Access> {
        let found = self.pending.iter().find(|p| p.user_data.contains(&user_data));
        let mut touches = vec![writes(Resource::Request(user_data))];
        touches.extend(found.into_iter().flat_map(|p| &p.touches).map(|access| writes(access.resource)));
        touches
    }
}

/// Replaces the descriptor by its registered file, in some cases.
pub(super) fn maybe_fixed(g: &mut ScenarioGenerator, draft: &mut Draft) {
    let index = fixture::TABLE.iter().position(|fd| *fd == draft.op.sqe.fd);
    if let Some(index) = index
        && draft.op.sqe.fd >= 0
        && g.rng.percent(20)
    {
        draft.op.sqe.fd = index as i32;
        draft.op.sqe.flags |= sqe::FIXED_FILE;
        draft.touches.push(reads(Resource::Table));
    }
}
