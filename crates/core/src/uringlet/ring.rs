//! A ring as the host of a run queue.

use super::run_queue::RunQueue;
use super::step::{self, Host};
use super::workers::{UringletWorkers, WorkerRole, WorkerTask};
use crate::io_wq::Account;
use crate::request::{Outcome, ReqId, Stage};
use crate::state::UringGuard;
use crate::submit::{TakenOp, complete_op, leave_to_submitter, take_op};
use crate::write::{self, history::Latency};
use core::sync::atomic::Ordering::Release;
use uringlet_sys::Errno;
use uringlet_sys::clock::ticks;
use uringlet_sys::stats::{self, Counter};

/// See the module.
#[derive(Debug)]
pub(super) struct RingHost;

/// An op on its way to a file.
#[derive(Debug)]
pub(super) struct RunningOp(TakenOp);

impl RunningOp {
    #[inline(always)]
    pub(super) fn run(&mut self) -> Outcome {
        self.0.op.run_in_place(self.0.fd)
    }
}

impl Host for RingHost {
    type Guard = UringGuard;
    type Id = ReqId;
    type Op = RunningOp;
    type Outcome = Outcome;

    #[inline]
    fn queue(guard: &mut UringGuard) -> &mut RunQueue<ReqId> {
        &mut guard.run_queue
    }

    fn now_ticks(_: &UringGuard) -> u64 {
        ticks()
    }

    fn notify_spinner(guard: &UringGuard) {
        guard.ring.event_seq.fetch_add(1, Release);
    }

    fn start(guard: &mut UringGuard, role: WorkerRole) -> Result<(), Errno> {
        let own = guard.res.lock_owner.identity();
        if guard.uringlet_workers.is_none() {
            // (0 changes no limit.)
            let [bound, _] = guard.io_wq.set_max_workers(None, [0, 0]);
            guard.uringlet_workers = Some(UringletWorkers::new(bound, own));
        }
        let Some(workers) = &guard.uringlet_workers else { return Err(Errno::ENOMEM) };
        let UringletWorkers { identity, may_spin, .. } = *workers;
        let task = WorkerTask { ring_index: guard.res.ring_index, generation: guard.generation, role, identity, may_spin };
        let (pool, number) = (workers.pool(), workers.pool().number());
        if own == identity {
            return pool.enqueue(Account::Bound, None, number, task).map_err(|_| Errno::EAGAIN);
        }
        if pool.enqueue_only(Account::Bound, None, number, task) || pool.withdraw(number).is_none() { Ok(()) } else { Err(Errno::EAGAIN) }
    }

    fn file_of(guard: &mut UringGuard, id: ReqId) -> Option<Option<i32>> {
        guard.parked(id).map(|parked| parked.req.queued_on.get())
    }

    fn take_op(guard: &mut UringGuard, id: ReqId, tid: u32) -> Option<RunningOp> {
        if leave_to_submitter(guard, id) {
            return None;
        }
        let taken = take_op(guard, id, tid)?;
        if let Some(parked) = guard.parked(id) {
            parked.stage = Stage::Running;
        }
        Some(RunningOp(taken))
    }

    fn run_unlocked(guard: &mut UringGuard, op: &mut RunningOp) -> Outcome {
        let outcome = guard.unlocked(|| op.run());
        stats::bump(guard.res.ring_index, Counter::UringletRunByWaiter);
        outcome
    }

    fn complete(guard: &mut UringGuard, id: ReqId, op: RunningOp, outcome: Outcome, written: Option<(i32, u64)>) {
        if let Some((file, ticks)) = written {
            write::after_inline(guard.res.ring_index, file, Latency::of(ticks, outcome.res.max(0) as u64));
        }
        complete_op(guard, id, op.0, outcome, None);
    }

    fn note_blocked(guard: &mut UringGuard, file: i32) {
        write::after_inline(guard.res.ring_index, file, Latency::Slow);
    }
}

/// If something is queued that no thread will look at, wakes or starts one.
#[inline]
pub(crate) fn wake(guard: &mut UringGuard) {
    step::wake::<RingHost>(guard);
}

/// Runs what is queued on this thread. `false`: nothing is queued, or another thread holds the
/// baton.
pub(crate) fn run_queued(guard: &mut UringGuard) -> bool {
    step::run_queued::<RingHost>(guard)
}
