//! Uringlet submission: whoever holds the ring's baton issues what is in line, sleeping if need be; when it blocks, the
//! baton passes on. The protocol, its states and its races are in `README.md`.

mod block_watch;
#[cfg(all(test, loom))]
mod model;

use super::leave::{ExitAction, exit_action, perform, release_ring_of_worker};
use crate::io_wq::{Account, InterruptGuard, Work};
use crate::ops::Op;
use crate::request::{Outcome, ReqId, Stage};
use crate::state::line::{Baton, Call, Loan, Run};
use crate::state::{Attendance, Attendants, LockOwner, Role, UringGuard};
use crate::submit::{complete_op, take_op};
use crate::write::{self, history::Latency};
use core::sync::atomic::Ordering::{Acquire, Release};
use uringlet_sys::clock::ticks;
use uringlet_sys::stats::{self, Counter};
use uringlet_sys::{Errno, process};

/// How long an attendant looks for more before it rests: 10 to 50 µs.
const SPIN_TICKS: u64 = 60_000;

impl Work for Attendance {
    fn run(self, _: &InterruptGuard) {
        match self.role {
            Role::Attendant => self.attend(),
            Role::Standby => block_watch::watch(&self),
        }
    }
}

/// If there is something in line that nobody will look at, calls somebody. Whoever lets a ring's lock go for good, or
/// goes to sleep, does this first.
#[inline]
pub(crate) fn call(guard: &mut UringGuard) {
    if !guard.line.is_empty() {
        call_somebody(guard);
    }
}

#[cold]
fn call_somebody(guard: &mut UringGuard) {
    match guard.line.call(ticks()) {
        Call::Nobody => {}
        Call::Spinner => {
            guard.ring.event_seq.fetch_add(1, Release);
        }
        Call::Attendant if start(guard, Role::Attendant).is_err() => {
            // No thread to be had: this one does it, however long it takes.
            while help(guard) {}
        }
        Call::Attendant => {}
        // Where none can be had, whoever comes next looks after the holder.
        Call::Standby => drop(start(guard, Role::Standby)),
    }
}

fn start(guard: &mut UringGuard, role: Role) -> Result<(), Errno> {
    if guard.attendants.is_none() {
        // (0: leave alone.)
        let [bound, _] = guard.io_wq.set_max_workers([0, 0]);
        guard.attendants = Some(Attendants::new(bound));
    }
    let Some(attendants) = &guard.attendants else { return Err(Errno::ENOMEM) };
    let work = Attendance { ring: guard.ring, generation: guard.generation, role, may_spin: attendants.may_spin };
    if attendants.pool().enqueue(Account::Bound, None, attendants.pool().number(), work).is_ok() {
        return Ok(());
    }
    // Nobody is there, nor on the way, for either part.
    guard.line.answer_call();
    guard.line.end_watch();
    Err(Errno::EAGAIN)
}

/// A request that the holder of the baton is at.
#[derive(Debug)]
struct Step {
    id: ReqId,
    op: Op,
    fd: i32,
    /// The number by which its file remembers its writes.
    file: Option<i32>,
    loan: Loan,
    start_ticks: u64,
}

impl Step {
    /// Takes the next request in line; the baton lies where another one can take it from now on. `Err`: none is left.
    fn begin(guard: &mut UringGuard, mut baton: Baton, tid: u32) -> Result<Self, Baton> {
        while let Some(id) = guard.line.next(&mut baton) {
            // What was cancelled is still in line.
            let Some(file) = guard.parked(id).map(|parked| parked.req.queued_on) else { continue };
            if let Some(blocked) = file.filter(|&file| guard.line.is_blocked(file)) {
                guard.line.hold_back(blocked, id);
                continue;
            }
            let Some((op, fd)) = take_op(guard, id) else { continue };
            if let Some(parked) = guard.parked(id) {
                parked.stage = Stage::Attended { tid };
            }
            let start_ticks = ticks();
            let loan = guard.line.lend(baton, id, start_ticks);
            call(guard);
            return Ok(Self { id, op, fd, file, loan, start_ticks });
        }
        Err(baton)
    }

    /// It was run: its completion. The baton, unless the step took so long that another worker has it.
    fn end(self, guard: &mut UringGuard, outcome: Outcome) -> Option<Baton> {
        let baton = guard.line.take_back(self.loan);
        if baton.is_none() {
            self.file.into_iter().for_each(|file| guard.line.unblock(file));
        }
        // Who succeeded this worker has noted that the file blocks.
        let took = baton.is_some().then(|| Latency::of(ticks().wrapping_sub(self.start_ticks), outcome.res.max(0) as u64));
        if let (Some(took), Some(file)) = (took, self.file) {
            write::after_inline(guard.res.ring_index, file, took);
        }
        complete_op(guard, self.id, self.op, outcome, None);
        baton
    }
}

/// A thread of the program that has to wait for everything in flight does what is in line itself. `false`: there is
/// nothing, or somebody else issues.
pub(crate) fn help(guard: &mut UringGuard) -> bool {
    let Some(mut baton) = guard.line.take() else { return false };
    // What others put in line meanwhile is not what it has to wait for.
    for nth in 0..guard.line.len() {
        let mut step = match Step::begin(guard, baton, 0) {
            Ok(step) => step,
            Err(left) => {
                guard.line.leave(left);
                return nth > 0;
            }
        };
        let outcome = guard.unlocked(|| step.op.run_in_place(step.fd));
        stats::bump(guard.res.ring_index, Counter::UringletRunByWaiter);
        match step.end(guard, outcome) {
            Some(back) => baton = back,
            None => return true,
        }
    }
    guard.line.leave(baton);
    true
}

impl Attendance {
    /// The ring, if it is still there.
    fn lock(&self) -> Option<UringGuard> {
        self.ring.lock(LockOwner::Worker).filter(|guard| guard.generation == self.generation)
    }

    fn attend(&self) {
        let Some(mut guard) = self.lock() else { return };
        guard.line.answer_call();
        match guard.line.succeed(ticks()) {
            Some((baton, blocked)) => self.issue(guard, baton, blocked),
            None => release_ring_of_worker(guard),
        }
    }

    /// Runs, one after the other, until the baton is gone or nothing more comes.
    fn issue(&self, mut guard: UringGuard, mut baton: Baton, blocked: Option<ReqId>) {
        if let Some(id) = blocked {
            note_blocked(&mut guard, id);
        }
        let tid = process::tid();
        loop {
            let mut step = match Step::begin(&mut guard, baton, tid) {
                Ok(step) => step,
                Err(left) => match self.rest(guard, left) {
                    Some((again, more)) => {
                        (guard, baton) = (again, more);
                        continue;
                    }
                    None => return,
                },
            };
            drop(guard);
            let outcome = step.op.run_in_place(step.fd);
            let Some(locked) = self.lock() else { return };
            guard = locked;
            match step.end(&mut guard, outcome) {
                Some(back) => baton = back,
                None => {
                    stats::bump(self.ring.index, Counter::UringletRunsScheduled);
                    return release_ring_of_worker(guard);
                }
            }
        }
    }

    /// Leaves the baton, and looks for more for a while.
    fn rest(&self, mut guard: UringGuard, baton: Baton) -> Option<(UringGuard, Baton)> {
        let counter = match guard.line.leave(baton) {
            Run::Empty => Counter::UringletRunsEmpty,
            Run::Inline => Counter::UringletRunsInline,
        };
        stats::bump(self.ring.index, counter);
        let how = exit_action(&mut guard);
        if !self.may_spin || matches!(how, ExitAction::Close) {
            perform(guard, how);
            return None;
        }
        guard.line.begin_spin();
        let seen = self.ring.event_seq.load(Acquire);
        perform(guard, how);
        self.spin(seen);
        let mut guard = self.lock()?;
        guard.line.end_spin();
        if guard.line.is_empty() {
            return None;
        }
        match guard.line.take() {
            Some(baton) => Some((guard, baton)),
            None => {
                release_ring_of_worker(guard);
                None
            }
        }
    }

    fn spin(&self, seen: u32) {
        let start = ticks();
        while self.ring.event_seq.load(Acquire) == seen && ticks().wrapping_sub(start) < SPIN_TICKS {
            core::hint::spin_loop();
        }
    }
}

/// The holder was succeeded while it was at this request: writes to its file wait for it, and are io-wq's for a while then.
fn note_blocked(guard: &mut UringGuard, id: ReqId) {
    if let Some(fd) = guard.parked(id).and_then(|parked| parked.req.queued_on) {
        write::after_inline(guard.res.ring_index, fd, Latency::Slow);
        guard.line.block(fd);
    }
}
