//! Generates scenarios from seeds.
//!
//! The outcome of a scenario must not depend on timing, apart from the order of completions. So
//! requests of one batch that access the same resource are in one chain, and a request that waits
//! from an earlier batch is woken by only one request at a time.

#[cfg(test)]
mod coverage;
mod draft;
mod files;
mod generator;
mod malformed;
mod misc;
mod names;
mod network;
mod recent;
mod registering;
mod streams;
mod time;

use crate::fixture;
use crate::scenario::{Scenario, ScenarioKind, ScenarioOp, ScenarioStep, WaitMethod};
use conformance_rng::Rng;
use draft::{Access, Draft, Resource, conflict, writes};
use generator::{Pending, ScenarioGenerator};
use uringlet_abi::{Opcode, setup, sqe};

/// The salt of this program's random numbers.
const RNG_SALT: u64 = 0x5bf0_3635_d1c2_a94b;

/// The scenario of a seed, of about this many requests.
pub(crate) fn scenario(seed: u64, ops: u64, kind: ScenarioKind) -> Scenario {
    let mut g = ScenarioGenerator {
        rng: Rng::new(seed, RNG_SALT),
        kind,
        next_id: 0,
        pending: Vec::new(),
        touched: Vec::new(),
        is_drain_blocked: false,
        has_drained: false,
        next_adopted: fixture::ADOPTED,
        has_futex_wait: false,
        has_vectors: false,
        may_pend: Vec::new(),
    };
    let mut scenario = g.ring();
    let limit = ops.min(fixture::MAX_OPS - 16);
    let room = scenario.entries.min(12) as usize;
    while g.next_id < limit {
        let step = g.step(room);
        scenario.steps.push(step);
    }
    scenario
}

/// A link without a successor is the last request of its batch, or it would get one.
fn end_chains(batch: &mut [ScenarioOp]) {
    for at in 1..batch.len() {
        if batch[at - 1].chain != batch[at].chain {
            batch[at - 1].sqe.flags &= !(sqe::IO_LINK | sqe::IO_HARDLINK);
        }
    }
}

impl ScenarioGenerator {
    fn ring(&mut self) -> Scenario {
        let rng = &mut self.rng;
        let mut setup_flags = match rng.below(10) {
            0 => setup::COOP_TASKRUN,
            1 => setup::COOP_TASKRUN | setup::TASKRUN_FLAG,
            2 | 3 => setup::SINGLE_ISSUER | setup::DEFER_TASKRUN,
            4 => setup::SQPOLL,
            _ => 0,
        };
        for (flag, chance) in
            [(setup::SUBMIT_ALL, 70), (setup::SQE128, 10), (setup::CQE32, 10), (setup::NO_SQARRAY, 10), (setup::R_DISABLED, 5)]
        {
            if rng.percent(chance) {
                setup_flags |= flag;
            }
        }
        let mut cq_entries = 0;
        let entries = rng.pick(&[16, 64]);
        if rng.percent(10) {
            setup_flags |= setup::CQSIZE;
            cq_entries = entries;
        }
        let mut waiting = rng.pick(&[WaitMethod::Enter, WaitMethod::Enter, WaitMethod::Enter, WaitMethod::Memory, WaitMethod::Poll]);
        if setup_flags & setup::DEFER_TASKRUN != 0 {
            waiting = WaitMethod::Enter;
        }
        let cancels_at_end = rng.percent(70);
        let mut scenario = Scenario { setup_flags, entries, cq_entries, waiting, cancels_at_end, early: Vec::new(), steps: Vec::new() };
        if self.is_recent() {
            self.ring_of_recent(&mut scenario);
        }
        scenario
    }

    fn ring_of_recent(&mut self, scenario: &mut Scenario) {
        scenario.setup_flags = recent::setup_flags(self, scenario.setup_flags);
        scenario.early = registering::before_enabling(self);
        // A ring of both sizes must not overflow: Linux 6.18 loses the order there.
        if scenario.setup_flags & setup::CQE_MIXED != 0 {
            (scenario.entries, scenario.cq_entries) = (64, 0);
            scenario.setup_flags &= !setup::CQSIZE;
        }
    }

    fn step(&mut self, room: usize) -> ScenarioStep {
        if !self.is_drain_blocked {
            self.touched.clear();
        }
        if self.rng.percent(18)
            && let Some(step) = self.direct_step()
        {
            return step;
        }
        if self.is_recent() && self.rng.percent(20) {
            return registering::step(self);
        }
        if self.rng.percent(6) {
            return misc::register(self);
        }
        let wanted = 1 + self.rng.below(8.min(room as u64 / 2)) as usize;
        let mut batch = Vec::new();
        for _ in 0..wanted * 4 {
            if batch.len() >= wanted {
                break;
            }
            let first_id = self.next_id;
            match self.group() {
                Some(group) => batch.extend(group),
                None => self.next_id = first_id,
            }
        }
        end_chains(&mut batch);
        ScenarioStep::Submit(batch)
    }

    /// A chain, or a single request. `None` if its outcome would depend on timing.
    fn group(&mut self) -> Option<Vec<ScenarioOp>> {
        let chain = self.next_id + 1;
        let mut drafts = vec![self.draft()];
        if self.rng.percent(35) {
            for _ in 0..1 + self.rng.below(3) {
                drafts.push(self.draft());
            }
            self.link(&mut drafts);
        }
        self.flag(&mut drafts);
        if self.blocks_in_worker(&drafts) {
            return None;
        }
        self.admit(&drafts)?;
        let can_pend = self.is_drain_blocked || drafts.iter().any(|draft| draft.op.may_pend);
        let touches: Vec<Access> = drafts.iter().flat_map(|draft| draft.touches.clone()).collect();
        self.touched.extend(&touches);
        self.may_pend.extend(drafts.iter().filter(|d| d.op.may_pend).map(|d| (d.op.sqe.opcode, d.op.user_data())));
        if can_pend {
            self.pending.push(Pending {
                touches,
                user_data: drafts.iter().map(|draft| draft.op.user_data()).collect(),
                is_multishot: drafts.iter().any(|draft| draft.is_multishot),
            });
        }
        let mut ops: Vec<ScenarioOp> = drafts.into_iter().map(|draft| draft.op).collect();
        for op in &mut ops {
            self.limit_bundle(op);
            op.chain = chain;
            op.may_pend |= can_pend || op.sqe.flags & sqe::CQE_SKIP_SUCCESS != 0;
        }
        Some(ops)
    }

    fn link(&mut self, drafts: &mut [Draft]) {
        if self.rng.percent(25) {
            // A timeout for the last request but one: generous, or short if that one has to wait.
            let guarded = drafts.len() - 2;
            let limit = self.link_timeout(drafts[guarded].op.may_pend && drafts[guarded].touches.len() == 1);
            drafts[guarded + 1] = limit;
        }
        let last = drafts.len() - 1;
        for draft in &mut drafts[..last] {
            draft.op.sqe.flags |= if self.rng.percent(25) { sqe::IO_HARDLINK } else { sqe::IO_LINK };
        }
        // A link without a successor: the kernel punts such a chain to a worker.
        if self.rng.percent(4) && drafts.iter().all(|draft| !draft.op.may_pend) {
            drafts[last].op.sqe.flags |= sqe::IO_LINK;
        }
    }

    /// In the kernel a worker also runs the successors of its request in a chain. They block in the
    /// worker instead of being polled: a cancel is reported differently, and O_NONBLOCK is
    /// honoured. The engine does not imitate that.
    fn blocks_in_worker(&self, drafts: &[Draft]) -> bool {
        let mut is_with_worker = self.has_drained;
        // A cancel that a worker runs finds itself.
        let is_cancel = |draft: &Draft| draft.op.sqe.opcode == Opcode::AsyncCancel as u8;
        let is_moved = |draft: &Draft| draft.op.sqe.flags & (sqe::ASYNC | sqe::IO_DRAIN) != 0;
        if drafts.iter().any(|draft| is_cancel(draft) && (self.has_drained || is_moved(draft) || drafts.len() > 1)) {
            return true;
        }
        drafts.iter().enumerate().any(|(index, draft)| {
            let sleeps = is_with_worker && index > 0 && draft.op.may_pend;
            let is_async = is_moved(draft) || self.has_drained;
            is_with_worker |= is_async || !draft.op.may_pend && draft.op.sqe.opcode != Opcode::Nop as u8;
            // An event counter takes writes from workers only.
            is_with_worker |=
                draft.op.sqe.opcode == Opcode::Write as u8 && draft.touches.iter().any(|access| access.is_of(&fixture::EVENTS));
            // Workers take provided buffers early, and end bundles.
            sleeps || is_async && draft.op.may_pend && (draft.is_multishot || draft.is_provided())
        })
    }

    /// Flags that any request may have.
    fn flag(&mut self, drafts: &mut [Draft]) {
        let mut drains = false;
        for draft in drafts.iter_mut() {
            let s = &mut draft.op.sqe;
            if self.rng.percent(if self.is_net() { 20 } else { 6 }) {
                s.flags |= sqe::ASYNC;
                // Another request may or may not find it.
                draft.touches.push(writes(Resource::Request(s.user_data)));
            }
            if self.rng.percent(6) && !draft.is_multishot {
                s.flags |= sqe::CQE_SKIP_SUCCESS;
            }
            // Behind a drained request the kernel starts requests in workers, and orders malformed
            // requests and notifications before all others.
            if self.rng.percent(2) && s.flags & sqe::CQE_SKIP_SUCCESS == 0 && !self.is_net() {
                s.flags |= sqe::IO_DRAIN;
                drains = true;
            }
            if self.rng.percent(8) {
                malformed::corrupt_field(&mut self.rng, draft);
            }
        }
        self.has_drained |= drains;
        self.is_drain_blocked |= drains && !self.pending.is_empty();
    }

    fn admit(&mut self, drafts: &[Draft]) -> Option<()> {
        let touches: Vec<Access> = drafts.iter().flat_map(|draft| draft.touches.clone()).collect();
        if conflict(&touches, &self.touched) {
            return None;
        }
        let woken: Vec<&Pending> = self.pending.iter().filter(|p| conflict(&p.touches, &touches)).collect();
        // Only one chain may be woken at a time: the successors of two chains could access the same
        // resource.
        if woken.len() > 1 {
            return None;
        }
        let Some(woken) = woken.first() else { return Some(()) };
        let wakers = drafts.iter().filter(|draft| conflict(&draft.touches, &woken.touches)).count();
        if (woken.is_multishot || self.is_net()) && wakers > 1 || conflict(&woken.touches, &self.touched) {
            return None;
        }
        self.touched.extend(&woken.touches);
        Some(())
    }

    /// A system call that may wake a waiting request.
    fn direct_step(&mut self) -> Option<ScenarioStep> {
        if self.rng.percent(15) {
            let group = if self.is_net() { self.rng.pick(&[fixture::RING_GROUP, fixture::INC_GROUP]) } else { fixture::RING_GROUP };
            return Some(ScenarioStep::Refill(group, 1 + self.rng.below(3) as u16));
        }
        let base = if self.rng.percent(50) { self.rng.pick(&fixture::PIPES) } else { self.rng.pick(&fixture::SOCKETS) };
        let base = if self.is_net() && self.rng.percent(60) { network::pair(self) } else { base };
        let touches = [writes(Resource::File(base))];
        if self.pending.iter().filter(|p| conflict(&p.touches, &touches)).count() > 1 || self.is_drain_blocked {
            return None;
        }
        let is_pipe = fixture::PIPES.contains(&base);
        let len = self.rng.pick(&[1, 100, 700, 2000]);
        Some(match self.rng.below(12) {
            // For a stream's end that the program itself shut down the engine reports more data to
            // come; the kernel only for the peer's. For datagrams the kernel lets a worker wait.
            0 if !(is_pipe || self.is_net() && base == fixture::TCP || [126, fixture::UDP].contains(&base)) => ScenarioStep::Shutdown(base),
            1 if is_pipe => ScenarioStep::Close(base + self.rng.below(2) as i32),
            2 | 3 if self.pending.iter().all(|p| !conflict(&p.touches, &touches)) => ScenarioStep::Read(base, len),
            _ => ScenarioStep::Write(base + 1, len),
        })
    }

    fn draft(&mut self) -> Draft {
        if self.is_recent() && self.rng.percent(60) {
            return recent::draft(self);
        }
        if self.is_net() && self.rng.percent(75) {
            return network::draft(self);
        }
        match self.rng.below(100) {
            0..24 => files::draft(self),
            24..36 => names::draft(self),
            36..66 => streams::draft(self),
            66..76 => time::draft(self),
            76..82 => time::cancel(self),
            82..90 => misc::poll(self),
            _ => misc::draft(self),
        }
    }
}
