//! A uringlet worker of a ring.

use super::ring::{RingHost, RunningOp};
use super::run_queue::RunEnd;
use super::worker_loop::{RunQueueWorker, work};
use super::workers::WorkerTask;
use crate::driver::leave::{ExitAction, exit_action, perform, release_ring_of_worker};
use crate::io_wq::{InterruptGuard, Work};
use crate::request::Outcome;
use crate::state::{LockOwner, RINGS, Ring, UringGuard};
use core::sync::atomic::Ordering::Acquire;
use uringlet_sys::clock::ticks;
use uringlet_sys::process;
use uringlet_sys::stats::{self, Counter};

/// How long a worker looks for more before it parks: 10 to 50 µs.
const SPIN_TICKS: u64 = 60_000;
/// A monitor's pause between two looks.
const LOOK_NS: u64 = 200_000;

impl Work for WorkerTask {
    fn run(self, interrupts: &InterruptGuard) {
        if let Some(ring) = RINGS.get(self.ring_index) {
            let owner = self.identity.map_or(LockOwner::Worker, LockOwner::WorkerOf);
            let tid = interrupts.calling_thread();
            work(&UringletWorker { ring, generation: self.generation, owner, tid, may_spin: self.may_spin }, self.role);
        }
    }
}

#[derive(Debug)]
struct UringletWorker {
    ring: &'static Ring,
    generation: u64,
    owner: LockOwner,
    tid: u32,
    may_spin: bool,
}

impl RunQueueWorker for UringletWorker {
    type Host = RingHost;
    type Exit = ExitAction;

    fn lock(&self) -> Option<UringGuard> {
        self.ring.lock(self.owner).filter(|guard| guard.generation == self.generation)
    }

    fn tid(&self) -> u32 {
        self.tid
    }

    #[inline]
    fn run(&self, op: &mut RunningOp) -> Outcome {
        op.run()
    }

    fn note_run(&self, end: RunEnd) {
        let counter = match end {
            RunEnd::Empty => Counter::UringletRunsEmpty,
            RunEnd::Inline => Counter::UringletRunsInline,
            RunEnd::Scheduled => Counter::UringletRunsScheduled,
        };
        stats::bump(self.ring.index, counter);
    }

    fn exit_action(guard: &mut UringGuard) -> ExitAction {
        exit_action(guard)
    }

    fn exit(guard: UringGuard, exit: ExitAction) {
        perform(guard, exit);
    }

    fn release(guard: UringGuard) {
        release_ring_of_worker(guard);
    }

    fn may_spin(&self, exit: &ExitAction) -> bool {
        self.may_spin && !matches!(exit, ExitAction::Close)
    }

    fn event_seq(&self) -> u32 {
        self.ring.event_seq.load(Acquire)
    }

    fn spin(&self, seen: u32) {
        let start = ticks();
        while self.event_seq() == seen && ticks().wrapping_sub(start) < SPIN_TICKS {
            core::hint::spin_loop();
        }
    }

    fn pause(&self) {
        process::sleep_ns(LOOK_NS);
    }
}
