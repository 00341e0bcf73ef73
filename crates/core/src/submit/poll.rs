//! POLL_ADD, POLL_REMOVE, and what a poll event does.

use super::attempt::Attempt;
use super::cancel;
use super::complete::complete;
use super::link_timeout;
use crate::apoll::{PollTarget, PollWaiter, Rearm};
use crate::ops::{Op, OpFile, poll::PollOp};
use crate::request::{FileTarget, Outcome, Request, Stage};
use crate::rsrc::files::FileNode;
use crate::state::{RINGS, Ready, UringGuard};
use alloc::boxed::Box;
use alloc::sync::Arc;
use uringlet_abi::{Cqe, Opcode, cqe};
use uringlet_sys::fd::EngineFd;
use uringlet_sys::io::{self, is_same_file};
use uringlet_sys::linux::general::POLLIN;
use uringlet_sys::{Errno, fd_table};

const POLLNVAL: u32 = 32;
/// The events that poll(2) reports of a file without a poll method: always ready.
const ALWAYS_READY: u32 = 0x145;

/// POLL_ADD.
pub(super) fn add(guard: &mut UringGuard, req: &mut Request, file: OpFile) -> Attempt {
    let Op::Poll(PollOp::Add { mask, is_multishot }) = req.op else { return Attempt::Parked };
    let ready = match io::poll_now(file.fd, mask) {
        Ok(events) if events & POLLNVAL != 0 => return Attempt::Done(Outcome::err(Errno::EBADF)),
        Ok(events) => events,
        Err(errno) => return Attempt::Done(Outcome::err(errno)),
    };
    // A multishot poll gets what is ready now from epoll, as its first edge.
    if ready != 0 && !is_multishot {
        return Attempt::Done(Outcome::ok(ready as i32));
    }
    if fd_table::ring_index(file.fd).is_some() {
        guard.unlocked(|| RINGS.note_polled_by_ring(file.fd));
    }
    let file = if is_multishot { duplicated(guard, req, file) } else { file };
    if let Some(own) = guard.eventfd.as_mut().filter(|_| is_multishot) {
        own.is_signalled = false;
    }
    let node = req.node().map(Arc::downgrade);
    let id = guard.park(req.take(), Stage::Armed { fd: file.fd });
    let waiting = PollWaiter { id, mask, is_multishot };
    let place = PollTarget { fd: file.fd, node };
    // A single-shot poll was tried just now.
    let rearm = if is_multishot { Rearm::Recheck } else { Rearm::TrustEdge };
    match guard.res.poller().and_then(|p| p.arm(place, waiting, rearm)) {
        Ok(()) => link_timeout::start(guard, id),
        Err(errno) => {
            let Some(parked) = guard.unpark(id) else { return Attempt::Parked };
            let outcome = match errno {
                Errno::EPERM if mask & ALWAYS_READY != 0 => Outcome::ok((mask & ALWAYS_READY) as i32),
                // None of these events can ever come.
                Errno::EPERM => Outcome::err(Errno::EINVAL),
                errno => Outcome::err(errno),
            };
            complete(guard, parked.req, outcome);
        }
    }
    Attempt::Parked
}

/// A multishot poll is armed on a duplicate of its own. Arming it again when its number is closed,
/// or another request on the same number, would report once more what it has reported before.
fn duplicated(guard: &mut UringGuard, req: &mut Request, file: OpFile) -> OpFile {
    let has_own = matches!(req.target, FileTarget::Duplicate(..)) || req.rare().is_some_and(|rare| rare.registered_file.is_some());
    // Not of a ring: the duplicate would keep it open.
    if has_own || fd_table::is_ours(file.fd) {
        return file;
    }
    let Ok(own) = EngineFd::dup_of(file.fd) else { return file };
    let number = own.number();
    let node = Arc::new(FileNode { fd: own, tag: 0 });
    match core::mem::replace(&mut req.target, FileTarget::None) {
        FileTarget::Held(registered) => {
            req.rare_mut().registered_file = Some(registered);
            req.target = FileTarget::Held(node);
        }
        _ => req.target = FileTarget::Duplicate(file.fd, node),
    }
    guard.res.has_nodes = true;
    OpFile { fd: number, is_fixed: true }
}

/// POLL_REMOVE: removes a poll, or changes its events or user data.
pub(super) fn change(guard: &mut UringGuard, op: PollOp) -> Result<usize, Errno> {
    let PollOp::Remove { target, mask, user_data } = op else { return Err(Errno::EINVAL) };
    let found = cancel::find(guard, Some(target), |_, p| p.req.opcode == Opcode::PollAdd);
    let &id = found.first().ok_or(Errno::ENOENT)?;
    if mask.is_none() && user_data.is_none() {
        return cancel::cancel_one(guard, id).map(|()| 0);
    }
    let mut req = guard.disarm(id).ok_or(Errno::ENOENT)?;
    if let Some(user_data) = user_data {
        req.user_data = user_data;
    }
    if let (Some(new), Op::Poll(PollOp::Add { mask, .. })) = (mask, &mut req.op) {
        *mask = new;
    }
    // `run_ready` arms it again, after a fresh look at the file's readiness.
    guard.ready.push_back(Ready::Issue(Box::new(req)));
    Ok(0)
}

/// A multishot poll of another ring ends with its first event: rings that poll each other would
/// otherwise wake each other for ever.
fn is_on_ring(stage: Stage) -> bool {
    matches!(stage, Stage::Armed { fd } if fd_table::ring_index(fd).is_some())
}

/// A multishot poll of the eventfd that the ring itself signals ends with the first event that may
/// be the ring's own: its CQEs would wake it for ever.
fn is_on_own_eventfd(guard: &UringGuard, stage: Stage) -> bool {
    let (Some(own), Stage::Armed { fd }) = (&guard.eventfd, stage) else { return false };
    own.is_signalled && is_same_file(fd, own.fd.number())
}

/// An event of a file, for one of the requests that waited for it. Returns the request if it has to
/// be issued again.
pub(crate) fn fired(guard: &mut UringGuard, waiting: PollWaiter, events: u32) -> Option<Request> {
    let parked = guard.parked(waiting.id)?;
    let stage = parked.stage;
    match parked.req.op {
        Op::Poll(PollOp::Add { mask, is_multishot: true }) => {
            let res = (events & mask) as i32;
            let user_data = parked.req.user_data;
            let ends = parked.req.ends_on_purpose();
            if let Some(fd) = parked.polled().filter(|_| events & mask & POLLIN != 0) {
                fd_table::set_told(fd, guard.res.ring_index);
            }
            if ends || !guard.res.has_room() || is_on_ring(stage) || is_on_own_eventfd(guard, stage) {
                let req = guard.disarm(waiting.id)?;
                complete(guard, req, Outcome::ok(res));
                return None;
            }
            guard.post_shot(waiting.id, Cqe { user_data, res, flags: cqe::MORE });
            None
        }
        Op::Poll(PollOp::Add { mask, .. }) => {
            let parked = guard.unpark(waiting.id)?;
            complete(guard, parked.req, Outcome::ok((events & mask) as i32));
            None
        }
        _ => guard.unpark(waiting.id).map(|parked| parked.req),
    }
}
