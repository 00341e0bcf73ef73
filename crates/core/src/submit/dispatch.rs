//! The only place that decides how a request goes on: complete, wait for poll, run here, or punt to io-wq.

use super::punt::punt;
use super::{act, complete, hybrid};
use crate::apoll::{PollTarget, PollWaiter, Rearm};
use crate::file::FileKind;
use crate::ops::hint::is_for_submitter;
use crate::ops::{Inline, Issue, IssueCx, Op, OpFile, table};
use crate::request::{Notification, Outcome, ReqId, Request, Stage, Target};
use crate::rsrc::files::FileNode;
use crate::state::{UringGuard, drain::Gate};
use crate::throttle::Throttled;
use crate::write::{self, WriteMode, history::Latency};
use alloc::sync::Arc;
use uringlet_abi::{Opcode, cqe, sqe};
use uringlet_sys::aio::Aio;
use uringlet_sys::clock::ticks;
use uringlet_sys::stats::{self, Counter};
use uringlet_sys::{Errno, fd::EngineFd};

/// Submissions of at most this many SQEs are shallow: cheap metadata runs inline.
pub(crate) const SHALLOW: u32 = 4;
/// Requests that may be with the kernel's AIO at once.
const AIO_DEPTH: u32 = 1024;

/// How far a request got without leaving its place.
#[derive(Debug)]
pub(crate) enum Now {
    /// To its end.
    Done(Outcome),
    /// It goes on elsewhere: [`later`] takes it there.
    Later(OpFile, Later),
}

/// Where a request goes on.
#[derive(Debug)]
pub(crate) enum Later {
    /// With the poller, for these events.
    Arm(u32, Rearm),
    /// With a worker.
    Punt,
    /// With the timers: a write for which too many pages are dirty.
    Throttle(Throttled),
    /// With the kernel's AIO.
    Aio,
    /// With `act`.
    RingOp,
    /// Here, from the start: its file turned out to be another one.
    Again,
}

/// Issues a request, and goes on until it is complete or parked.
pub(crate) fn issue(guard: &mut UringGuard, mut req: Request, is_shallow: bool) {
    loop {
        match try_now(guard, &mut req, is_shallow) {
            Now::Done(outcome) => return complete(guard, req, outcome),
            Now::Later(_, Later::Again) => {}
            Now::Later(file, step) => return later(guard, req, file, step),
        }
    }
}

/// Takes a request to where it goes on.
#[inline(never)]
pub(crate) fn later(guard: &mut UringGuard, req: Request, file: OpFile, step: Later) {
    match step {
        Later::Arm(mask, rearm) => arm(guard, req, file, mask, rearm),
        Later::Punt => punt(guard, req, file),
        Later::Throttle(throttled) => throttle(guard, req, file, throttled),
        Later::Aio => submit_aio(guard, req, file),
        Later::RingOp => act::act(guard, req, file),
        Later::Again => issue(guard, req, false),
    }
}

/// Issues a request as far as it gets where it is: most requests end here, and never move.
#[inline]
pub(crate) fn try_now(guard: &mut UringGuard, req: &mut Request, is_shallow: bool) -> Now {
    let file = match resolve(guard, req) {
        Ok(file) => file,
        // Bad iovecs and headers are found before a bad file.
        Err(errno) => return Now::Done(Outcome::err(req.op.import_args().err().unwrap_or(errno))),
    };
    let is_for_worker = req.has(sqe::ASYNC) && !req.poll_fired && !req.hybrid_done && req.op.may_run() && !is_for_submitter(&req.op);
    if is_for_worker && hybrid::is_for(req, file) {
        return Now::Later(file, hybrid::first_step(guard, req, file));
    }
    loop {
        let mut cx = IssueCx { ring: &mut guard.res, file, sqe_flags: req.flags, buf_group: req.buf_group, poll_fired: req.poll_fired };
        if is_for_worker {
            return match req.op.prepare_for_worker(&mut cx) {
                Ok(()) => Now::Later(file, Later::Punt),
                Err(errno) => Now::Done(Outcome::err(errno)),
            };
        }
        match req.op.try_issue(&mut cx) {
            Issue::Complete(outcome) => return Now::Done(outcome),
            Issue::More(outcome) if req.is_cancelled || !guard.res.has_room() => return Now::Done(outcome),
            Issue::More(outcome) => guard.post_outcome(req, outcome.with_flags(cqe::MORE)),
            Issue::Blocks if runs_inline(req, is_shallow && guard.res.mode != WriteMode::Uringlet) => return run_inline(guard, req, file),
            Issue::RunInline => return run_quick(guard, req, file),
            Issue::Blocks => return Now::Later(file, Later::Punt),
            Issue::Throttled(throttled) => return Now::Later(file, Later::Throttle(throttled)),
            Issue::WouldBlock(mask) => return Now::Later(file, Later::Arm(mask, Rearm::TrustEdge)),
            Issue::PollFirst(mask) => return Now::Later(file, Later::Arm(mask, Rearm::Recheck)),
            Issue::Aio => return Now::Later(file, Later::Aio),
            Issue::RingOp => return Now::Later(file, Later::RingOp),
        }
    }
}

fn runs_inline(req: &Request, is_shallow: bool) -> bool {
    if req.has(sqe::ASYNC) || req.poll_fired {
        return false;
    }
    match table::of(req.opcode).inline {
        Inline::Always => true,
        Inline::Shallow => is_shallow,
        Inline::Never => false,
    }
}

/// The file of a request. A registered one is held from now on, so that its slot may change meanwhile.
#[inline]
fn resolve(guard: &UringGuard, req: &mut Request) -> Result<OpFile, Errno> {
    match &req.target {
        Target::None => Ok(OpFile { fd: -1, is_fixed: false }),
        Target::Fd(fd) if *fd < 0 => Err(Errno::EBADF),
        Target::Fd(fd) => Ok(OpFile { fd: *fd, is_fixed: false }),
        Target::Held(node) => Ok(OpFile { fd: node.fd.number(), is_fixed: true }),
        Target::Fixed(index) => {
            let node = guard.res.files.get(*index).ok_or(Errno::EBADF)?;
            let fd = node.fd.number();
            req.target = Target::Held(Arc::clone(node));
            Ok(OpFile { fd, is_fixed: true })
        }
    }
}

/// Runs an op on this thread, with the lock let go: it is expected not to sleep for long.
#[inline]
fn run_inline(guard: &mut UringGuard, req: &mut Request, file: OpFile) -> Now {
    let op = &mut req.op;
    let outcome = guard.unlocked(|| op.run(file.fd));
    let outcome = req.op.finish(&mut guard.res, outcome);
    if outcome.res == -Errno::ESPIPE.into_raw() && !file.is_fixed && !FileKind::refresh(file.fd).is_seekable() {
        // The number was known as a file with positions, and is another one now: nothing was done.
        return Now::Later(file, Later::Again);
    }
    Now::Done(outcome)
}

/// A write that the page cache is expected to take: here. It is timed, and the file remembers it.
fn run_quick(guard: &mut UringGuard, req: &mut Request, file: OpFile) -> Now {
    let start = ticks();
    let now = run_inline(guard, req, file);
    if let Now::Done(outcome) = &now {
        let bytes = outcome.res.max(0) as u64;
        guard.res.throttle.charge(bytes);
        stats::bump(guard.res.ring_index, Counter::WritesInline);
        let took = Latency::of(ticks().wrapping_sub(start), bytes);
        write::after_inline(guard.res.ring_index, file.fd, took);
    }
    now
}

/// Puts a write off: the machine has too many dirty pages, and the kernel would have its writer sleep.
#[cold]
fn throttle(guard: &mut UringGuard, mut req: Request, file: OpFile, throttled: Throttled) {
    if let Err(errno) = req.op.import_args() {
        return complete(guard, req, Outcome::err(errno));
    }
    req.queued_on = Some(file.fd);
    act::park_throttled(guard, req, throttled);
}

/// A write that was put off has its turn: a worker's, which may sleep if it has to.
pub(super) fn end_pace(guard: &mut UringGuard, mut req: Request) {
    match resolve(guard, &mut req) {
        Ok(file) => punt(guard, req, file),
        Err(errno) => complete(guard, req, Outcome::err(errno)),
    }
}

/// Parks a request until its file is ready.
#[inline(never)]
pub(super) fn arm(guard: &mut UringGuard, mut req: Request, file: OpFile, mask: u32, rearm: Rearm) {
    // The program may reuse iovecs and headers once its SQE is consumed.
    if let Err(errno) = req.op.import_args() {
        return complete(guard, req, Outcome::err(errno));
    }
    req.poll_fired = true;
    // What is no socket may say "not now" and be ready all the same.
    let rearm = if matches!(req.op, Op::Net(_)) || file.kind().is_socket() { rearm } else { Rearm::Recheck };
    let node = req.node().cloned();
    let id = guard.park(req, Stage::Armed { fd: file.fd });
    let place = PollTarget { fd: file.fd, node: node.as_ref() };
    let armed = guard.res.poller().and_then(|p| p.arm(place, PollWaiter { id, mask, is_multishot: false }, rearm));
    match armed {
        Ok(()) => act::start_link_timer(guard, id),
        Err(errno) => {
            let Some(parked) = guard.unpark(id) else { return };
            match errno {
                // Not pollable after all: a thread has to wait for it.
                Errno::EPERM => punt(guard, parked.req, file),
                errno => complete(guard, parked.req, Outcome::err(errno)),
            }
        }
    }
}

/// Hands a request to the kernel's AIO; where that is not to be had, to a worker.
#[inline(never)]
fn submit_aio(guard: &mut UringGuard, req: Request, file: OpFile) {
    if guard.aio.is_none() && make_aio(guard).is_err() || guard.aio_in_flight >= AIO_DEPTH {
        return punt(guard, req, file);
    }
    let id = guard.park(req, Stage::Aio);
    match hand_to_aio(guard, id, file) {
        Ok(()) => {
            guard.aio_in_flight += 1;
            act::start_link_timer(guard, id);
        }
        Err(errno) => {
            let Some(parked) = guard.unpark(id) else { return };
            match errno {
                Errno::EAGAIN | Errno::ENOSYS | Errno::EOPNOTSUPP => punt(guard, parked.req, file),
                errno => complete(guard, parked.req, Outcome::err(errno)),
            }
        }
    }
}

fn hand_to_aio(guard: &mut UringGuard, id: ReqId, file: OpFile) -> Result<(), Errno> {
    let request = match guard.parked(id).map(|parked| &parked.req.op) {
        Some(Op::Rw(op)) => op.aio_request(file.fd, id.to_u64()),
        _ => return Err(Errno::EINVAL),
    };
    guard.aio.as_ref().ok_or(Errno::ENOSYS)?.submit(&request)
}

fn make_aio(guard: &mut UringGuard) -> Result<(), Errno> {
    let bell = guard.res.poller()?.wake_eventfd.number();
    let depth = guard.res.memory.geometry().cq_entries.clamp(16, AIO_DEPTH);
    guard.aio = Some(Aio::new(depth, bell)?);
    Ok(())
}

/// Goes on with the chain behind a completed request, or breaks it.
#[inline(never)]
pub(crate) fn go_on(guard: &mut UringGuard, req: &mut Request, is_failure: bool) {
    end_unstarted_timer(guard, req);
    let Some(next) = req.next.take() else { return };
    if is_failure && !req.has(sqe::IO_HARDLINK) {
        let is_silent = req.has(sqe::CQE_SKIP_SUCCESS);
        return cancel_chain(guard, *next, is_silent);
    }
    guard.ready.push_back(*next);
}

/// A LINK_TIMEOUT whose request never had to wait is over before it began: cancelled, which is no failure.
fn end_unstarted_timer(guard: &mut UringGuard, req: &mut Request) {
    if !req.next.as_ref().is_some_and(|next| next.opcode == Opcode::LinkTimeout && next.prep_error().is_none()) {
        return;
    }
    let Some(mut timer) = req.next.take() else { return };
    req.next = timer.next.take();
    complete(guard, *timer, Outcome::errno_ok(Errno::ECANCELED));
}

/// Every request of a broken chain: ECANCELED.
#[inline(never)]
pub(crate) fn cancel_chain(guard: &mut UringGuard, head: Request, is_silent: bool) {
    let mut next = Some(head);
    while let Some(mut req) = next {
        next = req.next.take().map(|boxed| *boxed);
        req.flags &= !sqe::CQE_SKIP_SUCCESS;
        req.is_silent = is_silent;
        // Cancelled like this it announces nothing.
        req.notification = req.notification.map(|notification| Notification { is_announced: false, ..notification });
        let errno = req.prep_error().unwrap_or(Errno::ECANCELED);
        complete(guard, req, Outcome::err(errno));
    }
}

/// A chain with a malformed request: that one says its errno, the others are cancelled.
#[inline(never)]
pub(crate) fn fail_chain(guard: &mut UringGuard, mut head: Request) {
    let mut rest = head.take_rest();
    let errno = head.prep_error().unwrap_or(Errno::ECANCELED);
    let is_silent = head.has(sqe::CQE_SKIP_SUCCESS);
    complete(guard, head, Outcome::err(errno));
    end_unstarted_timer(guard, &mut rest);
    if let Some(next) = rest.next.take() {
        cancel_chain(guard, *next, is_silent);
    }
}

/// Moves drained chains whose turn has come to the ready ones.
#[inline(never)]
pub(crate) fn run_drained(guard: &mut UringGuard) {
    let mut gate = Gate::default();
    loop {
        let busy = guard.in_flight - guard.drain.requests();
        let Some(head) = guard.drain.pop(busy, &mut gate) else { return };
        guard.ready.push_back(head);
    }
}

/// Issues what has become ready.
#[inline]
pub(crate) fn run_ready(guard: &mut UringGuard, is_shallow: bool) {
    while let Some(req) = guard.ready.pop_front() {
        issue(guard, req, is_shallow);
    }
}

/// A descriptor number is about to be closed while requests use it: they go on with a duplicate.
pub(crate) fn keep_file(guard: &mut UringGuard, fd: i32) {
    let waiting = guard.res.poller.as_mut().map(|p| p.remove_file(fd)).unwrap_or_default();
    if !uringlet_sys::fd_table::has_users(fd) {
        return;
    }
    let users: alloc::vec::Vec<ReqId> = guard
        .parked
        .iter()
        .filter(|(_, p)| matches!(p.req.target, Target::Fd(n) if n == fd))
        .map(|(key, p)| ReqId { key: key as u32, generation: p.generation })
        .collect();
    if users.is_empty() {
        return;
    }
    let kept = match EngineFd::dup_of(fd) {
        Ok(kept) => kept,
        // Nothing will ever wake those that waited: they say why. The others meet EBADF by themselves.
        Err(errno) => {
            waiting.iter().for_each(|w| give_up(guard, w.id, errno));
            return run_ready(guard, false);
        }
    };
    let node = Arc::new(FileNode { fd: kept, tag: 0 });
    for id in users {
        let Some(parked) = guard.parked(id) else { continue };
        parked.req.target = Target::Held(Arc::clone(&node));
        uringlet_sys::fd_table::drop_user(fd);
        if let Stage::Armed { fd: armed } = &mut parked.stage {
            *armed = node.fd.number();
        }
    }
    for w in waiting {
        act::rearm(guard, w, PollTarget { fd: node.fd.number(), node: Some(&node) });
    }
    run_ready(guard, false);
}

/// Ends a parked request that nobody can bring on any more.
pub(crate) fn give_up(guard: &mut UringGuard, id: ReqId, errno: Errno) {
    if let Some(parked) = guard.unpark(id) {
        complete(guard, parked.req, Outcome::err(errno));
    }
}
