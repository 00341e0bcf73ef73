//! Requests that need a thread that may sleep: queued for a worker, and taken back by a cancel. The
//! worker's part is `driver::worker`.

use super::attempt::Depth;
use super::complete::complete;
use super::identity::WorkerIdentity;
use super::{facts, identity, link_timeout};
use crate::io_wq::{Account, Cancelled, HashKey, InterruptGuard, Work};
use crate::ops::{Op, OpFile, table};
use crate::request::{OptionalFd, Outcome, ReqId, Request, Stage};
use crate::route::{PollDirection, Route};
use crate::state::{Punted, Ready, UringGuard};
use alloc::boxed::Box;
use uringlet_sys::stats::{self, Counter};
use uringlet_sys::{Errno, io, thread};

/// Gives a request to a thread that may sleep.
#[inline(never)]
pub(super) fn punt(guard: &mut UringGuard, mut req: Request, file: OpFile) {
    if let Err(errno) = req.op.import_args() {
        return complete(guard, req, Outcome::err(errno));
    }
    let kind = facts::file_kind(&req, file);
    if req.op.is_write() && kind.is_seekable() && !kind.is_direct() {
        req.queued_on = OptionalFd::some(file.fd);
        stats::bump(guard.res.ring_index, Counter::WritesWorker);
    }
    match facts::blocked_route(guard, &req, file, Depth::Driving) {
        Route::UringletWorker => enqueue(guard, req),
        route => {
            if matches!(route, Route::UringletPunt(_)) {
                stats::bump(guard.res.ring_index, Counter::UringletPunts);
            }
            hand_to_io_wq(guard, req, file, route);
        }
    }
}

/// Gives a request to a worker of its submitter's identity, because this thread has another one. A
/// bounded worker, of which there is one: these ops do not wait for others, but for readiness.
#[cold]
pub(super) fn punt_to_submitter(guard: &mut UringGuard, mut req: Request, file: OpFile) {
    if let Err(errno) = req.op.import_args() {
        return complete(guard, req, Outcome::err(errno));
    }
    let has_poll_direction = table::of(req.opcode).routing.poll != PollDirection::Never;
    let route = if has_poll_direction { Route::IoWqTry(Account::Bound) } else { Route::IoWq(Account::Bound) };
    hand_to_io_wq(guard, req, file, route);
}

/// If this thread must not issue a queued request, hands it to a worker of its submitter's
/// identity.
pub(crate) fn leave_to_submitter(guard: &mut UringGuard, id: ReqId) -> bool {
    let Some(parked) = guard.parked(id) else { return false };
    let submitter = parked.req.submitter();
    if !identity::must_not_issue(guard, submitter) {
        return false;
    }
    let Some(mut req) = guard.disarm(id) else { return true };
    match guard.resolve(&mut req) {
        Ok(file) => punt_to_submitter(guard, req, file),
        Err(errno) => complete(guard, req, Outcome::err(errno)),
    }
    true
}

/// Puts a request into the run queue. A worker is woken before the ring's lock is released
/// (`uringlet`).
fn enqueue(guard: &mut UringGuard, req: Request) {
    let id = guard.park(req, Stage::Queued);
    link_timeout::start(guard, id);
    guard.run_queue.enqueue(id);
}

/// Buffered writes to an inode run one at a time, in this order: more threads would only wait for
/// its lock.
fn hash_key(req: &Request) -> Option<HashKey> {
    let stat = io::fstat(req.queued_on.get()?).ok()?;
    Some(HashKey::of_inode(stat.dev, stat.ino))
}

/// Parks a request for a worker. If none exists and none can be started, it goes on here.
pub(super) fn hand_to_io_wq(guard: &mut UringGuard, req: Request, file: OpFile, route: Route) -> ReqId {
    let (account, is_hybrid) = match route {
        Route::IoWqTry(account) => (account, true),
        Route::IoWq(account) | Route::UringletPunt(account) => (account, false),
        _ => unreachable!("{route:?} is no route to io-wq"),
    };
    let (key, submitter) = (hash_key(&req), req.thread);
    let WorkerIdentity { identity, is_own } = identity::of_worker(guard, req.submitter());
    let io_wq = guard.io_wq.clone();
    let work = io_wq.number();
    let id = guard.park(req, Stage::Worker { work });
    link_timeout::start(guard, id);
    let (ring_index, ring_generation) = (guard.res.ring_index, guard.generation);
    let punted = Punted { ring_index, ring_generation, id, work, account, is_hybrid, identity, submitter };
    if !is_own {
        if !io_wq.enqueue_only(key, punted) {
            identity::note_missing_worker(guard);
        }
        return id;
    }
    // No worker could be started.
    for stranded in io_wq.enqueue(key, punted).err().unwrap_or_default() {
        if stranded.id != id || stranded.ring_index != guard.res.ring_index {
            // Another request with the same key, or one of another ring that shares the pool.
            guard.unlocked(|| stranded.run(&InterruptGuard::new()));
            continue;
        }
        if let Some(parked) = guard.unpark(id) {
            run_without_worker(guard, parked.req, file);
        }
    }
    id
}

/// The submitter does a worker's part. It must not wait for what it may have to do itself later: so
/// a request is tried first, and armed if its file can be polled; one that only sleeps is refused.
fn run_without_worker(guard: &mut UringGuard, mut req: Request, file: OpFile) {
    if matches!(req.op, Op::Waitid(_) | Op::Futex(_)) {
        return complete(guard, req, Outcome::err(Errno::EAGAIN));
    }
    if !req.hybrid_done {
        req.hybrid_done = true;
        return guard.ready.push_back(Ready::Issue(Box::new(req)));
    }
    let op = &mut req.op;
    let outcome = guard.unlocked(|| op.run(file.fd));
    let outcome = req.op.finish(&mut guard.res, outcome);
    complete(guard, req, outcome);
}

/// Interrupts the uringlet worker that runs a request.
pub(crate) fn interrupt(guard: &mut UringGuard, id: ReqId, tid: u32) {
    if let Some(parked) = guard.parked(id) {
        parked.req.is_cancelled = true;
    }
    if tid != 0 {
        // Under the ring's lock: the worker has not returned, so it runs the request or is about
        // to.
        thread::interrupt(tid);
    }
}

/// Takes a request back from io-wq, or interrupts its worker: then `None`.
pub(crate) fn unpunt(guard: &mut UringGuard, id: ReqId, work: u64) -> Option<Request> {
    let own = guard.res.lock_owner.identity();
    match guard.io_wq.cancel(own, work) {
        Cancelled::Queued(punted) => guard.unpark(punted.id).map(|parked| parked.req),
        Cancelled::Running | Cancelled::Unknown => {
            if let Some(parked) = guard.parked(id) {
                parked.req.is_cancelled = true;
            }
            None
        }
    }
}
