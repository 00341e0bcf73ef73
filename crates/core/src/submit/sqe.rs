//! One SQE: executed on the fast path, or checked and made a request.

use super::attempt::{Attempt, Depth, FastPath};
use super::chain::Chain;
use super::complete::{complete_in_place, fire_counted};
use super::dispatch::{attempt, continue_as};
use super::fast_path::fast_path;
use super::unseen_closes;
use crate::fault::{self, Fault};
use crate::ops::table::{self, OpDef};
use crate::ops::{Op, PrepCx, filter_details, filter_details_size};
use crate::request::{FileTarget, Outcome, Request};
use crate::state::{FilterContext, UringGuard};
use crate::trace;
use uringlet_abi::{Cqe, Opcode, Sqe, setup, sqe};
use uringlet_sys::trace::road;
use uringlet_sys::{Errno, process};

/// `IOSQE_*` that an SQE may have.
pub(crate) const SQE_FLAGS: u8 =
    sqe::FIXED_FILE | sqe::IO_DRAIN | sqe::IO_LINK | sqe::IO_HARDLINK | sqe::ASYNC | sqe::BUFFER_SELECT | sqe::CQE_SKIP_SUCCESS;
const LINKS: u8 = sqe::IO_LINK | sqe::IO_HARDLINK;

/// Where an SQE is.
#[derive(Clone, Copy, Debug)]
pub(super) struct SqeSlot {
    pub(super) index: u32,
    /// No other SQE follows in this submission.
    pub(super) is_last: bool,
}

/// How a submission goes on behind an SQE.
#[derive(Clone, Copy, Debug)]
pub(super) struct SqeResult {
    /// Refused by `prep`. Without `SETUP_SUBMIT_ALL` the submission ends here.
    pub(super) is_malformed: bool,
    /// The next entry is its second half (`SETUP_SQE_MIXED`).
    pub(super) is_wide: bool,
}

impl SqeResult {
    const SUBMITTED: Self = Self { is_malformed: false, is_wide: false };

    fn of(req: &Request, is_wide: bool) -> Self {
        Self { is_malformed: req.prep_error().is_some(), is_wide }
    }
}

/// Whether an SQE takes two entries: the next one has its second half.
#[inline]
fn is_wide(guard: &UringGuard, sqe: &Sqe, slot: SqeSlot) -> bool {
    guard.res.setup & setup::SQE_MIXED != 0
        && Opcode::from_u8(sqe.opcode).is_some_and(|opcode| table::of(opcode).is_wide)
        && !slot.is_last
        && slot.index + 1 < guard.res.memory.geometry().sq_entries
}

/// One SQE: a single one is issued at once, a linked one when its chain is complete.
#[inline(always)]
pub(super) fn submit_sqe(guard: &mut UringGuard, sqe: &Sqe, slot: SqeSlot, chain: &mut Chain, depth: Depth) -> SqeResult {
    if trace::is_on() {
        return submit_watched(guard, sqe, slot, chain, depth);
    }
    submit_since(None, guard, sqe, slot, chain, depth)
}

/// A process that is traced, or injects faults.
#[cold]
#[inline(never)]
fn submit_watched(guard: &mut UringGuard, sqe: &Sqe, slot: SqeSlot, chain: &mut Chain, depth: Depth) -> SqeResult {
    let since = trace::ticks();
    let mut changed = *sqe;
    let fault = fault::of_sqe(&mut guard.res, &mut changed);
    submit_since(Some(WatchedSqe { since, program: sqe, fault }), guard, &changed, slot, chain, depth)
}

/// What is known of an SQE of a process that is traced, or injects faults.
#[derive(Clone, Copy, Debug)]
struct WatchedSqe<'s> {
    /// When it was consumed, ticks.
    since: u64,
    /// As the program wrote it.
    program: &'s Sqe,
    fault: Option<Fault>,
}

impl WatchedSqe<'_> {
    /// Tells the tracer of a new request, which keeps what is done to it.
    fn begin(self, guard: &mut UringGuard, slot: SqeSlot, req: &mut Request) {
        req.trace = trace::submitted(&mut guard.res, self.program, slot.is_last, self.since);
        if let Some(fault) = self.fault {
            trace::faulted(&guard.res, req.trace, self.program, fault);
            req.trace = req.trace.by(road::INJECTED);
            req.rare_mut().fault = Some(fault.actions);
        }
    }
}

#[inline(always)]
fn submit_since(
    watched: Option<WatchedSqe<'_>>,
    guard: &mut UringGuard,
    sqe: &Sqe,
    slot: SqeSlot,
    chain: &mut Chain,
    depth: Depth,
) -> SqeResult {
    let is_after_link = !chain.is_empty();
    // A tracer is told the name of a file before that is closed.
    let needs_request = watched.is_some_and(|watched| watched.fault.is_some() || sqe.opcode == Opcode::Close as u8);
    let mut tried = FastPath::Fallback;
    if !is_after_link && guard.drain.is_idle() && !guard.has_no_fast_path && !needs_request {
        tried = fast_path(guard, sqe, depth);
        if let FastPath::Done(outcome) = tried {
            if let Some(watched) = watched {
                trace::executed(&mut guard.res, sqe, slot.is_last, watched.since, outcome);
            }
            post_fast_path(guard, sqe, outcome);
            return SqeResult::SUBMITTED;
        }
    }
    unseen_closes::look(guard, sqe);
    let is_wide = is_wide(guard, sqe, slot);
    let mut req = Request::new(sqe);
    req.thread = process::thread_key();
    if let Some(watched) = watched {
        watched.begin(guard, slot, &mut req);
    }
    prep(guard, sqe, &PrepCx { setup: guard.res.setup, sqe_flags: sqe.flags, is_after_link, is_wide }, &mut req);
    req.op.resume(tried.progress());
    req.op.read_big_sqe(&guard.res.memory, slot.index);
    if is_after_link {
        chain.refuse_second_timeout(&mut req);
    }
    guard.in_flight += 1;
    if !is_after_link && sqe.flags & LINKS == 0 && guard.drain.is_idle() {
        let result = SqeResult::of(&req, is_wide);
        submit_alone(guard, &mut req, depth);
        return result;
    }
    // The request may wait for others, and the program may reuse what its SQE points to once that
    // is consumed.
    if req.prep_error().is_none()
        && let Err(errno) = req.op.import_args()
    {
        req.op = Op::Malformed(errno);
    }
    let result = SqeResult::of(&req, is_wide);
    chain.push(guard, req);
    if sqe.flags & LINKS != 0 {
        // A malformed request inside a chain breaks the chain, not the submission.
        return SqeResult { is_malformed: false, is_wide };
    }
    chain.finish(guard, depth);
    result
}

#[inline(always)]
fn post_fast_path(guard: &mut UringGuard, sqe: &Sqe, outcome: Outcome) {
    if sqe.flags & sqe::ASYNC != 0 {
        guard.res.cq.note_async();
    }
    guard.res.post(Cqe { user_data: sqe.user_data, res: outcome.res, flags: outcome.flags });
    if guard.res.timers.counts_completions() {
        fire_counted(guard);
    }
}

/// Issues a request without links. If it completes at once it is never moved.
#[inline]
fn submit_alone(guard: &mut UringGuard, req: &mut Request, depth: Depth) {
    let attempt = match req.op {
        Op::Malformed(errno) => Attempt::Done(Outcome::err(errno)),
        _ => attempt(guard, req, depth),
    };
    match attempt {
        Attempt::Done(outcome) => complete_in_place(guard, req, outcome),
        Attempt::Continue(file, next) => continue_as(guard, req.take(), file, next),
        Attempt::Parked => {}
    }
}

/// Fills in the request from its SQE. If the SQE is malformed, the request keeps the errno.
#[inline]
fn prep(guard: &mut UringGuard, sqe: &Sqe, cx: &PrepCx, req: &mut Request) {
    let prepared = match Opcode::from_u8(sqe.opcode) {
        Some(opcode) => {
            let def = table::of(opcode);
            req.opcode = opcode;
            if def.needs_file {
                req.target = if sqe.flags & sqe::FIXED_FILE != 0 { FileTarget::Fixed(sqe.fd as u32) } else { FileTarget::Fd(sqe.fd) };
            }
            check(sqe, def, cx, guard).and_then(|()| {
                if sqe.personality != 0 {
                    adopt_personality(guard, sqe.personality, req)?;
                }
                if let Some(notification) = def.notification.and_then(|notification| notification(sqe)) {
                    req.rare_mut().notification = Some(notification);
                }
                (def.prep)(sqe, cx, &mut req.op)?;
                if guard.filters.is_some() {
                    ask_filters(guard, sqe, &req.op)?;
                }
                Ok(())
            })
        }
        None => Err(Errno::EINVAL),
    };
    if let Err(errno) = prepared {
        req.op = Op::Malformed(errno);
    }
}

/// The checks that all opcodes share.
#[inline]
fn check(sqe: &Sqe, def: &OpDef, cx: &PrepCx, guard: &mut UringGuard) -> Result<(), Errno> {
    if def.is_wide && cx.setup & setup::SQE128 == 0 && !cx.is_wide {
        return Err(Errno::EINVAL);
    }
    if sqe.flags & !SQE_FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    if !def.supported {
        return Err(Errno::EINVAL);
    }
    if sqe.flags & sqe::BUFFER_SELECT != 0 && !def.buffer_select {
        return Err(Errno::EOPNOTSUPP);
    }
    if sqe.flags & sqe::CQE_SKIP_SUCCESS != 0 {
        guard.drain.bar();
    }
    if sqe.flags & sqe::IO_DRAIN != 0 {
        if guard.drain.is_barred() {
            return Err(Errno::EOPNOTSUPP);
        }
        guard.drain.begin(cx.is_after_link);
    }
    if guard.restrictions.as_ref().is_some_and(|restrictions| !restrictions.allow_sqe(sqe.opcode, sqe.flags)) {
        return Err(Errno::EACCES);
    }
    if !def.ioprio && sqe.ioprio != 0 {
        return Err(Errno::EINVAL);
    }
    if cx.setup & setup::IOPOLL != 0 && !def.iopoll {
        return Err(Errno::EINVAL);
    }
    if sqe.opcode == Opcode::RecvZc as u8 && !guard.res.zcrx.contains(sqe.file_index()) {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// The ring's filters see the request.
///
/// # Errors
/// `EACCES`: one denies it.
#[cold]
fn ask_filters(guard: &UringGuard, sqe: &Sqe, op: &Op) -> Result<(), Errno> {
    let context = || FilterContext {
        user_data: sqe.user_data,
        opcode: sqe.opcode,
        sqe_flags: sqe.flags,
        details: filter_details(op),
        details_size: filter_details_size(sqe.opcode),
    };
    let is_allowed = guard.filters.as_ref().is_none_or(|filters| filters.allow(sqe.opcode, context));
    if is_allowed { Ok(()) } else { Err(Errno::EACCES) }
}

/// The request acts with a registered identity.
///
/// # Errors
/// `EINVAL`: it is not registered.
#[cold]
fn adopt_personality(guard: &UringGuard, id: u16, req: &mut Request) -> Result<(), Errno> {
    req.rare_mut().captured = Some(guard.personalities.find(id).ok_or(Errno::EINVAL)?);
    Ok(())
}
