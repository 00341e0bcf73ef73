//! Requests that need a thread that may sleep: on their way to io-wq, with it, and back.

use super::dispatch::run_ready;
use super::{act, complete, hybrid, wait};
use crate::file::FileKind;
use crate::io_wq::{Account, Cancelled, HashKey, InterruptGuard, Work};
use crate::ops::{Op, OpFile, futex::FutexOp};
use crate::request::{Outcome, ReqId, Request, Stage, Target};
use crate::state::{LockOwner, Punted, UringGuard};
use crate::write::{self, WriteMode, history::Latency};
use alloc::sync::Arc;
use uringlet_abi::sqe;
use uringlet_sys::clock::{ticks, voluntary_switches};
use uringlet_sys::stats::{self, Counter};
use uringlet_sys::{Errno, io, thread};

/// Gives a request to a thread that may sleep.
#[inline(never)]
pub(super) fn punt(guard: &mut UringGuard, mut req: Request, file: OpFile) {
    if let Err(errno) = req.op.import_args() {
        return complete(guard, req, Outcome::err(errno));
    }
    let kind = file.kind();
    if req.op.is_write() && kind.is_seekable() && !kind.is_direct() {
        req.queued_on = Some(file.fd);
        stats::bump(guard.res.ring_index, Counter::WritesWorker);
    }
    if guard.res.mode != WriteMode::Uringlet || !is_for_line(&req, kind) {
        hand_to_io_wq(guard, req, file);
    } else if req.queued_on.is_some_and(|fd| !write::history_of(fd).is_fast() && !guard.line.is_blocked(fd)) {
        // Whoever issued it would be expected to block: not with the baton.
        stats::bump(guard.res.ring_index, Counter::UringletPunts);
        hand_to_io_wq(guard, req, file);
    } else {
        put_in_line(guard, req);
    }
}

/// Whether the ring's own workers issue it, one after the other: it is not expected to block for long. What blocks by its
/// nature is io-wq's.
fn is_for_line(req: &Request, kind: FileKind) -> bool {
    match &req.op {
        _ if req.has(sqe::ASYNC) => false,
        Op::Fs(_) => true,
        Op::Rw(op) => req.queued_on.is_some() && !op.waits_for_disk(kind),
        _ => false,
    }
}

/// Whoever lets the ring's lock go calls an attendant (`driver::uringlet`).
fn put_in_line(guard: &mut UringGuard, req: Request) {
    let id = guard.park(req, Stage::InLine);
    act::start_link_timer(guard, id);
    guard.line.push(id);
}

/// Buffered writes to an inode run one at a time, in this order: more threads would only wait for its lock.
fn hash_key(req: &Request) -> Option<HashKey> {
    let stat = io::fstat(req.queued_on?).ok()?;
    Some(HashKey::of_inode(stat.dev, stat.ino))
}

/// The request is parked as a worker's, unless it is complete already.
pub(super) fn hand_to_io_wq(guard: &mut UringGuard, req: Request, file: OpFile) -> ReqId {
    let account = match &req.op {
        Op::Net(_) | Op::Splice(_) | Op::Cmd(_) | Op::Waitid(_) | Op::Futex(_) => Account::Unbound,
        Op::Rw(_) if !file.kind().is_seekable() => Account::Unbound,
        _ => Account::Bound,
    };
    let is_hybrid = req.has(sqe::ASYNC) && !req.poll_fired && hybrid::is_for(&req, file);
    let key = hash_key(&req);
    let io_wq = guard.io_wq.clone();
    let work = io_wq.number();
    let id = guard.park(req, Stage::Worker { work });
    act::start_link_timer(guard, id);
    let punted = Punted { ring: guard.ring, ring_generation: guard.generation, id, is_hybrid };
    // No thread to be had: this one has to do them, however long it takes.
    for stranded in io_wq.enqueue(account, key, work, punted).err().unwrap_or_default() {
        if stranded.id != id || !core::ptr::eq(stranded.ring, guard.ring) {
            // It waited for the same key, or another ring shares the pool.
            guard.unlocked(|| stranded.run(&InterruptGuard::new()));
            continue;
        }
        let Some(mut parked) = guard.unpark(id) else { continue };
        let op = &mut parked.req.op;
        let outcome = guard.unlocked(|| op.run(file.fd));
        let outcome = parked.req.op.finish(&mut guard.res, outcome);
        complete(guard, parked.req, outcome);
    }
    id
}

impl Work for Punted {
    /// On a worker: takes the op, runs it without the lock, completes the request.
    fn run(self, interrupts: &InterruptGuard) {
        if self.is_hybrid {
            return hybrid::run(&self, interrupts);
        }
        match self.take_op() {
            Some((op @ (Op::Waitid(_) | Op::Futex(_)), fd)) => wait::run(&self, op, fd, interrupts),
            Some((op, fd)) => self.run_to_the_end(op, fd, interrupts),
            None => {}
        }
    }
}

impl Punted {
    /// Runs the op, sleeping as needed, and completes the request.
    pub(super) fn run_to_the_end(&self, mut op: Op, fd: i32, interrupts: &InterruptGuard) {
        let stopwatch = op.is_write().then(Stopwatch::start);
        // Cancelled before it began: it is not done.
        let outcome = interrupts.run(|| op.run(fd)).unwrap_or_else(|| Outcome::err(Errno::ECANCELED));
        let took = stopwatch.map(|stopwatch| stopwatch.read(outcome));
        let Some(mut guard) = self.lock() else { return };
        if was_run(&mut guard, self.id, op, outcome, took) {
            act::leave(guard);
        }
    }

    /// The request's ring, if it is still there.
    pub(super) fn lock(&self) -> Option<UringGuard> {
        self.ring.lock(LockOwner::Worker).filter(|guard| guard.generation == self.ring_generation)
    }

    pub(super) fn take_op(&self) -> Option<(Op, i32)> {
        take_op(&mut self.lock()?, self.id)
    }

    /// The request that was cancelled before a worker took it.
    pub(crate) fn id(&self) -> ReqId {
        self.id
    }
}

/// Takes the op out of a parked request, to be run without the ring's lock, and the number of its file.
pub(crate) fn take_op(guard: &mut UringGuard, id: ReqId) -> Option<(Op, i32)> {
    let parked = guard.parked(id)?;
    let fd = match &parked.req.target {
        Target::Fd(fd) => *fd,
        Target::Held(node) => node.fd.number(),
        Target::None | Target::Fixed(_) => -1,
    };
    if let Op::Futex(FutexOp::Wait(wait)) = &parked.req.op {
        // Who ends the request has to know the sleeper.
        return Some((Op::Futex(FutexOp::Wait(Arc::clone(wait))), fd));
    }
    Some((core::mem::replace(&mut parked.req.op, Op::InFlight), fd))
}

/// A parked request's op was run: it is complete. `false` if it is not there any more.
pub(crate) fn was_run(guard: &mut UringGuard, id: ReqId, mut op: Op, outcome: Outcome, took: Option<Latency>) -> bool {
    let outcome = op.finish(&mut guard.res, outcome);
    let Some(mut parked) = guard.unpark(id) else { return false };
    if let Some(fd) = parked.req.queued_on.take() {
        guard.res.throttle.charge(outcome.res.max(0) as u64);
        if let Some(took) = took {
            write::after_worker(guard.res.ring_index, fd, took);
        }
    }
    parked.req.op = op;
    complete(guard, parked.req, outcome);
    run_ready(guard, true);
    true
}

/// Times a write on a thread of the engine's: losing the CPU is not held against the file.
pub(super) struct Stopwatch {
    start: u64,
    sleeps: u64,
}

impl Stopwatch {
    pub(super) fn start() -> Self {
        Self { sleeps: voluntary_switches(), start: ticks() }
    }

    pub(super) fn read(self, outcome: Outcome) -> Latency {
        match Latency::of(ticks().wrapping_sub(self.start), outcome.res.max(0) as u64) {
            Latency::Slow if voluntary_switches() == self.sleeps => Latency::Fast,
            took => took,
        }
    }
}

/// Interrupts the attendant that is at a request.
pub(crate) fn interrupt(guard: &mut UringGuard, id: ReqId, tid: u32) {
    if let Some(parked) = guard.parked(id) {
        parked.req.is_cancelled = true;
    }
    if tid != 0 {
        // Under the lock: it has not come back, so it is at it, or about to be.
        thread::interrupt(tid);
    }
}

/// Takes a request back from io-wq, or interrupts the worker. `None`: it is being done.
pub(crate) fn unpunt(guard: &mut UringGuard, id: ReqId, work: u64) -> Option<Request> {
    match guard.io_wq.cancel(work) {
        Cancelled::Queued(punted) => guard.unpark(punted.id()).map(|parked| parked.req),
        Cancelled::Running | Cancelled::Unknown => {
            if let Some(parked) = guard.parked(id) {
                parked.req.is_cancelled = true;
            }
            None
        }
    }
}
