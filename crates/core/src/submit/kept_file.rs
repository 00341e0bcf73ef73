//! A file whose number the program closes while requests use it.
//!
//! A thread that executes an op on the number has it in a register, and may not have entered the
//! kernel yet:
//!
//! ```text
//!   executes an op                     closes or replaces the number
//!   takes the op: number, tid          finds the op taken: notes the thread
//!   (lock released)                    (lock released)
//!   system call on the number          waits until the thread is in a system call, or done
//!                                      close(2), dup2(2)
//! ```
//!
//! From its system call on the kernel holds the file. Whether a thread is in one is in
//! `/proc/self/task/N/syscall`. So a close does not wait for an op that sleeps. The lock's own call
//! (futex), by which the thread may have released it, does not count.
//!
//! Differs: an op that needs a second system call looks the number up again.

use super::arm::rearm;
use super::attempt::Depth;
use super::complete::fail;
use super::dispatch::run_ready;
use crate::apoll::{PollTarget, PollWaiter};
use crate::ops::Op;
use crate::request::{FileTarget, ReqId, Stage};
use crate::ring_resources::LockOwner;
use crate::rsrc::files::FileNode;
use crate::state::{Ring, UringGuard};
use alloc::sync::Arc;
use alloc::vec::Vec;
use uringlet_sys::fd::EngineFd;
use uringlet_sys::{fd_table, process, thread};

/// A thread executes an op on a number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NumberUse {
    id: ReqId,
    generation: u64,
    executor: u32,
}

impl NumberUse {
    /// Waits until the thread has passed the number to the kernel. No lock is held.
    pub(crate) fn wait(self, ring: &'static Ring) {
        const PAUSE_NS: u64 = 20_000;
        /// A second in all: an op that a thread of the program executes may sleep.
        const PAUSES: u32 = 50_000;
        for _ in 0..PAUSES {
            let has_entered = self.executor != 0 && thread::is_in_system_call(self.executor);
            if has_entered || !self.goes_on(ring) {
                return;
            }
            process::sleep_ns(PAUSE_NS);
        }
    }

    fn goes_on(self, ring: &'static Ring) -> bool {
        let Some(mut guard) = ring.lock(LockOwner::Worker).filter(|guard| guard.generation == self.generation) else { return false };
        guard.parked(self.id).is_some_and(|parked| matches!(parked.req.op, Op::InFlight))
    }
}

/// The program is about to close a descriptor number that requests use: they go on with a
/// duplicate. Returns the uses to wait for.
pub(crate) fn keep_file(guard: &mut UringGuard, fd: i32) -> Vec<NumberUse> {
    let waiting = guard.res.poller.as_mut().map(|p| p.remove_file(fd)).unwrap_or_default();
    // Of several rings, the others may have had all of them.
    if !fd_table::has_users(fd) {
        return Vec::new();
    }
    let mut users = guard.matching(|_, p| p.req.fd() == Some(fd));
    users.retain(|&id| !end_duplicate(guard, id, fd));
    let uses = uses_among(guard, &users);
    if !users.is_empty() {
        hold_file(guard, fd, users, waiting);
    }
    uses
}

/// The ops that threads execute on a number of the engine's now.
pub(crate) fn uses_of(guard: &mut UringGuard, fd: i32) -> Vec<NumberUse> {
    let users = guard.matching(|_, p| matches!(p.req.op, Op::InFlight) && p.req.open_number() == Some(fd));
    uses_among(guard, &users)
}

/// What other threads execute of these requests.
fn uses_among(guard: &mut UringGuard, users: &[ReqId]) -> Vec<NumberUse> {
    let generation = guard.generation;
    let use_of = |&id: &ReqId| {
        let parked = guard.parked(id).filter(|p| matches!(p.req.op, Op::InFlight))?;
        Some(NumberUse { id, generation, executor: parked.executor })
    };
    let mut uses: Vec<NumberUse> = users.iter().filter_map(use_of).collect();
    if !uses.is_empty() {
        let me = process::tid();
        uses.retain(|number_use| number_use.executor != me);
    }
    uses
}

/// Lets requests on a number go on with a duplicate; `waiting` are those that were in the poller.
fn hold_file(guard: &mut UringGuard, fd: i32, users: Vec<ReqId>, waiting: Vec<PollWaiter>) {
    let kept = match EngineFd::dup_of(fd) {
        Ok(kept) => kept,
        // No event will come for the waiting ones any more: they fail. The others get EBADF when
        // issued.
        Err(errno) => {
            waiting.iter().for_each(|w| fail(guard, w.id, errno));
            return run_ready(guard, Depth::Driving);
        }
    };
    let node = Arc::new(FileNode { fd: kept, tag: 0 });
    guard.res.has_nodes = true;
    for id in users {
        let Some(parked) = guard.parked(id) else { continue };
        parked.req.target = FileTarget::Held(Arc::clone(&node));
        fd_table::drop_user(fd);
        if let Stage::Armed { fd: armed } = &mut parked.stage {
            *armed = node.fd.number();
        }
    }
    for w in waiting {
        rearm(guard, w, PollTarget { fd: node.fd.number(), node: Some(Arc::downgrade(&node)) });
    }
    guard.res.release_file(node);
    run_ready(guard, Depth::Driving);
}

/// A request that has a duplicate of the file already: the number is not its any more. Returns
/// whether it is one.
fn end_duplicate(guard: &mut UringGuard, id: ReqId, fd: i32) -> bool {
    let Some(parked) = guard.parked(id) else { return false };
    if !matches!(parked.req.target, FileTarget::Duplicate(..)) {
        return false;
    }
    if let FileTarget::Duplicate(_, node) = core::mem::replace(&mut parked.req.target, FileTarget::None) {
        parked.req.target = FileTarget::Held(node);
        fd_table::drop_user(fd);
    }
    true
}

/// The engine's descriptor of a file has another number, and the old one is about to be the
/// program's.
pub(crate) fn move_file(guard: &mut UringGuard, old: i32, new: i32) {
    let waiting = guard.res.poller.as_mut().map(|p| p.remove_file(old)).unwrap_or_default();
    for w in waiting {
        let Some(parked) = guard.parked(w.id) else { continue };
        if let Stage::Armed { fd } = &mut parked.stage {
            *fd = new;
        }
        let node = parked.req.node().map(Arc::downgrade);
        rearm(guard, w, PollTarget { fd: new, node });
    }
    run_ready(guard, Depth::Driving);
}
