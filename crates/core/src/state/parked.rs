//! The table of parked requests.

use super::ring::RingState;
use super::user_data_index::UserDataIndex;
use crate::ops::OpFile;
use crate::request::{FileTarget, Outcome, Parked, ReqId, Request, Stage};
use crate::trace;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::num::NonZeroU32;
use uringlet_abi::{Cqe, cqe, setup, sqe};
use uringlet_sys::Errno;

impl RingState {
    /// Posts the CQE of an outcome, unless the request suppresses it.
    pub(crate) fn post_outcome(&mut self, req: &Request, outcome: Outcome) {
        let is_silent = req.is_silent || (req.has(sqe::CQE_SKIP_SUCCESS) && !outcome.is_failure && outcome.flags & cqe::MORE == 0);
        if trace::is_on() {
            self.trace_outcome(req, outcome, !is_silent);
        }
        if is_silent {
            return;
        }
        let cqe = Cqe { user_data: req.user_data, res: outcome.res, flags: outcome.flags };
        if req.overflows_on_purpose() {
            return self.res.post_behind(cqe);
        }
        if self.res.setup & (setup::CQE32 | setup::CQE_MIXED) != 0
            && let Some(extra) = req.op.cqe_extra(outcome)
        {
            return self.res.post_big(cqe, extra);
        }
        self.res.post(cqe);
    }

    /// Tells a tracer of an outcome.
    #[cold]
    pub(crate) fn trace_outcome(&self, req: &Request, outcome: Outcome, has_cqe: bool) {
        let end = trace::TracedOutcome { tag: req.trace, opcode: req.opcode, user_data: req.user_data, has_cqe };
        trace::completed(&self.res, end, outcome, req.op.filled());
    }

    /// Posts a CQE of a parked request that goes on.
    pub(crate) fn post_shot(&mut self, id: ReqId, cqe: Cqe) {
        if trace::is_on()
            && let Some(parked) = self.parked.get(id.key as usize)
        {
            self.trace_outcome(&parked.req, Outcome { flags: cqe.flags, ..Outcome::ok(cqe.res) }, true);
        }
        self.res.post(cqe);
    }

    /// Keeps a request until its stage ends.
    pub(crate) fn park(&mut self, mut req: Request, stage: Stage) -> ReqId {
        req.trace = req.trace.by(stage.road());
        let generation = self.next_generation;
        self.next_generation = generation.checked_add(1).unwrap_or(NonZeroU32::MIN);
        let parked = Parked { req, stage, generation, executor: 0 };
        parked.mark(self.res.ring_index);
        if let Some((fd, throttled)) = parked.throttled() {
            self.res.throttle.add(fd, throttled);
        }
        let user_data = parked.req.user_data;
        let key = self.parked.insert(parked) as u32;
        if let Some(index) = &mut self.by_user_data {
            index.insert(key, user_data);
        }
        ReqId { key, generation }
    }

    /// The parked request, if it is still there.
    pub(crate) fn parked(&mut self, id: ReqId) -> Option<&mut Parked> {
        self.parked.get_mut(id.key as usize).filter(|p| p.generation == id.generation)
    }

    /// Takes a parked request out of the table: the caller completes it.
    pub(crate) fn unpark(&mut self, id: ReqId) -> Option<Parked> {
        self.parked(id)?;
        let parked = self.parked.remove(id.key as usize);
        if let Some(index) = &mut self.by_user_data {
            index.remove(id.key);
        }
        parked.unmark(self.res.ring_index);
        if let Some((fd, throttled)) = parked.throttled() {
            self.res.throttle.remove(fd, throttled);
        }
        Some(parked)
    }

    /// Takes a parked request back from the poller or the timers: the caller completes it.
    pub(crate) fn disarm(&mut self, id: ReqId) -> Option<Request> {
        let parked = self.unpark(id)?;
        match parked.stage {
            Stage::Armed { fd } => {
                if let Some(poller) = &mut self.res.poller {
                    poller.disarm(fd, id);
                }
            }
            Stage::Throttled { throttled, seq, .. } => self.res.timers.disarm(throttled.deadline_ns, seq),
            Stage::Timer { deadline_ns, seq } | Stage::LinkTimer { deadline_ns, seq, .. } | Stage::Delayed { deadline_ns, seq } => {
                self.res.timers.disarm(deadline_ns, seq);
                self.res.timers.stop_counting(id);
            }
            // The run queue skips ids that are not parked any more.
            Stage::Queued | Stage::Running | Stage::Worker { .. } | Stage::Aio | Stage::Command => {}
        }
        Some(parked.req)
    }

    /// Whether requests are in flight that the thread with this key has submitted.
    pub(crate) fn has_requests_of(&self, thread: u64) -> bool {
        self.drain.has_of(thread) || self.parked.iter().any(|(_, parked)| parked.req.thread == thread)
    }

    /// The parked requests of which `wanted` is true, in order of submission.
    pub(crate) fn matching(&self, wanted: impl Fn(&Self, &Parked) -> bool) -> Vec<ReqId> {
        let mut ids: Vec<ReqId> = self
            .parked
            .iter()
            .filter(|(_, p)| wanted(self, p))
            .map(|(key, p)| ReqId { key: key as u32, generation: p.generation })
            .collect();
        ids.sort_by_key(|id| id.generation);
        ids
    }

    /// The descriptor numbers that parked requests use and of which `wanted` is true, ascending.
    pub(crate) fn open_numbers(&self, wanted: impl Fn(i32) -> bool) -> Vec<i32> {
        let mut numbers: Vec<i32> = self.parked.iter().filter_map(|(_, p)| p.req.open_number()).filter(|&fd| wanted(fd)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// As [`matching`](Self::matching), of the requests with this user_data.
    pub(crate) fn matching_user_data(&mut self, user_data: u64, wanted: impl Fn(&Self, &Parked) -> bool) -> Vec<ReqId> {
        /// So few requests are looked at one by one.
        const FEW: u32 = 32;
        if self.by_user_data.is_none() {
            if self.in_flight <= FEW {
                return self.matching(|state, p| p.req.user_data == user_data && wanted(state, p));
            }
            self.by_user_data =
                Some(UserDataIndex::new(self.parked.iter().filter_map(|(key, p)| Some((u32::try_from(key).ok()?, p.req.user_data)))));
        }
        let keys = self.by_user_data.iter().flat_map(|index| index.find(user_data));
        let mut ids: Vec<ReqId> = keys
            .filter_map(|key| self.parked.get(key as usize).map(|p| (key, p)))
            .filter(|(_, p)| wanted(self, p))
            .map(|(key, p)| ReqId { key, generation: p.generation })
            .collect();
        ids.sort_by_key(|id| id.generation);
        ids
    }

    /// The file of a request. A registered one is held from now on, so that its slot may change
    /// meanwhile.
    #[inline]
    pub(crate) fn resolve(&self, req: &mut Request) -> Result<OpFile, Errno> {
        match &req.target {
            FileTarget::None => Ok(OpFile { fd: -1, is_fixed: false }),
            FileTarget::Fd(fd) if *fd < 0 => Err(Errno::EBADF),
            FileTarget::Fd(fd) => Ok(OpFile { fd: *fd, is_fixed: false }),
            FileTarget::Held(node) | FileTarget::Duplicate(_, node) => Ok(OpFile { fd: node.fd.number(), is_fixed: true }),
            FileTarget::Fixed(index) => {
                let node = self.res.files.get(*index).ok_or(Errno::EBADF)?;
                let fd = node.fd.number();
                req.target = FileTarget::Held(Arc::clone(node));
                Ok(OpFile { fd, is_fixed: true })
            }
        }
    }
    /// The request outlives its try: it holds its registered buffer from now on.
    #[inline]
    pub(crate) fn hold_buffer(&self, req: &mut Request) {
        if self.res.buffers.is_registered && req.rare().is_none_or(|rare| rare.buffer.is_none()) {
            let index = req.op.registered_buffer();
            if let Some(node) = index.and_then(|index| self.res.buffers.get(index)) {
                req.rare_mut().buffer = Some(Arc::clone(node));
            }
        }
    }
}
