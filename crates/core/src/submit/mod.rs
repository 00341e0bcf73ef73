//! From SQEs to requests to completions. Each file uses only those below it:
//!
//! ```text
//!   mod                                 submit: the loop over the SQ
//!   sqe, fast_path, fast_names,
//!   unseen_closes                       one SQE: executed directly, or made a request
//!   chain                               link chains: put together, drained, failed
//!   in_flight, kept_file                ops that ran without the lock; files that are closed under a request
//!   dispatch                            decides complete / poll / run / punt
//!   ring_op: poll, timeout, cancel, msg_ring, command, wait
//!                                       ops on the ring itself: they return an `Attempt`
//!   remote_cancel, left_timeouts        requests of the process that made the ring, and of a child that exits
//!   fault                               what is done to a request on purpose when it is issued
//!   arm, aio, punt, hybrid              the ways to park a request
//!   zcrx                                receives that wait for what no poll tells
//!   identity                            whose worker runs a request
//!   complete, link_timeout, attempt     the end of a request, and the chain behind it
//!   clock                               deadlines on clocks that step
//! ```

mod aio;
mod arm;
mod attempt;
pub(crate) mod cancel;
mod chain;
mod clock;
pub(crate) mod command;
mod complete;
mod dispatch;
mod facts;
mod fast_names;
mod fast_path;
mod fault;
pub(crate) mod identity;
mod in_flight;
mod kept_file;
pub(crate) mod left_timeouts;
mod link_timeout;
mod msg_ring;
mod poll;
mod punt;
mod remote_cancel;
mod ring_op;
mod sqe;
mod timeout;
pub(crate) mod unseen_closes;
mod wait;
mod zcrx;

pub(crate) use aio::reap as reap_aio;
pub(crate) use arm::arm;
pub(crate) use attempt::Depth;
pub(crate) use complete::complete;
pub(crate) use dispatch::{issue, issue_in_loop, run_ready};
pub(crate) use in_flight::{TakenOp, complete_op, take_op};
pub(crate) use kept_file::{keep_file, move_file, uses_of};
pub(crate) use msg_ring::send_without_ring as send_msg_ring;
pub(crate) use poll::fired as poll_fired;
pub(crate) use punt::leave_to_submitter;
pub(crate) use remote_cancel::{cancel_matching, serve as serve_processes};
pub(crate) use sqe::SQE_FLAGS;
pub(crate) use timeout::{fire_expired, follow_clocks};
pub(crate) use zcrx::revive_starved;

use crate::ring::SubmitBaton;
use crate::state::UringGuard;
use chain::Chain;
use complete::release_drained;
use core::sync::atomic::Ordering::Acquire;
use sqe::{SqeSlot, submit_sqe};
use uringlet_abi::setup;
use uringlet_sys::lock::futex_wait;
use uringlet_sys::process::monotonic_ns;
use uringlet_sys::stats::{self, Counter};
use uringlet_sys::{Errno, reserve};

/// Consumes up to `to_submit` SQEs. Returns how many.
///
/// # Errors
/// `EAGAIN`: no memory for a request. As the kernel, which then leaves the SQE where it is.
#[inline(always)]
pub(crate) fn submit(guard: &mut UringGuard, to_submit: u32) -> Result<u32, Errno> {
    if to_submit == 0 {
        return Ok(0);
    }
    let mut baton = take_baton(guard);
    if guard.is_shared() {
        baton.resync_head(&guard.res.memory);
    }
    let n = baton.start(&guard.res.memory).min(to_submit);
    let depth = Depth::of(n);
    if depth == Depth::Deep {
        guard.metadata_pace.begin_submission();
    }
    let mut chain = Chain::default();
    let mut submitted = 0;
    while submitted < n {
        // If processes share the ring, another one may take the next SQE as soon as the lock is
        // released.
        let is_shared = guard.is_shared();
        if is_shared && !baton.resync_head(&guard.res.memory) {
            break;
        }
        if reserve::ensure().is_err() {
            break;
        }
        let Some(index) = baton.next(&guard.res.memory) else { break };
        let sqe = guard.res.memory.sqe(index);
        // After a fork the child may begin to share the ring at any time.
        if is_shared || guard.was_forked {
            baton.publish(&guard.res.memory);
        }
        submitted += 1;
        let slot = SqeSlot { index, is_last: submitted == n };
        let result = submit_sqe(guard, &sqe, slot, &mut chain, depth);
        if result.is_wide {
            baton.skip();
            submitted += 1;
        }
        if result.is_malformed && guard.res.setup & setup::SUBMIT_ALL == 0 {
            break;
        }
    }
    chain.finish(guard, depth);
    // As in the kernel, the links of what is complete come after all SQEs of the submission.
    if !guard.ready.is_empty() {
        run_ready(guard, depth);
    }
    if !guard.drain.is_empty() {
        release_drained(guard);
        run_ready(guard, depth);
    }
    if !guard.is_shared() {
        baton.publish(&guard.res.memory);
    }
    give_baton_back(guard, baton);
    stats::add(guard.res.ring_index, Counter::Submitted, u64::from(submitted));
    if submitted == 0 && n > 0 && reserve::is_low() { Err(Errno::EAGAIN) } else { Ok(submitted) }
}

/// The baton of a ring, which no other thread has until it is given back.
#[inline(always)]
pub(crate) fn take_baton(guard: &mut UringGuard) -> SubmitBaton {
    loop {
        match guard.baton.take() {
            Some(baton) => return baton,
            // Another thread submits.
            None => wait_for_baton(guard),
        }
    }
}

/// The end of what [`take_baton`] began.
#[inline(always)]
pub(crate) fn give_baton_back(guard: &mut UringGuard, baton: SubmitBaton) {
    guard.baton = Some(baton);
    if guard.waiters.for_baton > 0 {
        guard.res.cq.note_must_wake();
    }
}

#[cold]
fn wait_for_baton(guard: &mut UringGuard) {
    let ring = guard.ring;
    let seen = ring.cq_wait_seq.load(Acquire);
    guard.waiters.sleeping += 1;
    guard.waiters.for_baton += 1;
    guard.unlocked(|| {
        // A millisecond at most: a submitter that found no waiter when it ended sends no wake-up.
        let _ = futex_wait(&ring.cq_wait_seq, seen, monotonic_ns() + 1_000_000);
    });
    guard.waiters.for_baton -= 1;
    guard.waiters.sleeping -= 1;
}
