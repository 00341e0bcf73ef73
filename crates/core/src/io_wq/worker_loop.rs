//! What a worker's thread does: take items, run them, park, exit.

use super::acct::{Account, KeyLease, WorkerSlot};
use super::policy::{ExitReason, WorkerCounts};
use super::pool::{IoWq, MayStart, Work};
use super::worker::Worker;
use alloc::sync::Arc;
use uringlet_sys::lock::RawMutex;
use uringlet_sys::{process, thread};

/// An idle worker exits after this long.
pub(super) const IDLE_NS: u64 = 5_000_000_000;

/// A worker at work.
struct WorkerLoop<W, R> {
    pool: Arc<IoWq<W, R>>,
    account: Account,
    me: Arc<Worker>,
    /// It was woken or started, and has not found work yet.
    is_searching: bool,
}

/// The worker's thread.
pub(super) fn worker_main<W: Work, R: RawMutex>(pool: Arc<IoWq<W, R>>, account: Account, me: Arc<Worker>) {
    thread::accept_interrupts();
    pool.add(&me);
    let slot = pool.acct(account).with(|list| list.attach_worker(Arc::clone(&me)));
    WorkerLoop { pool, account, me, is_searching: true }.work(slot);
}

impl<W: Work, R: RawMutex> WorkerLoop<W, R> {
    fn work(mut self, slot: WorkerSlot) {
        let mut done = KeyLease::None;
        loop {
            let lease = core::mem::take(&mut done);
            let next = self.pool.acct(self.account).with(|list| match self.exit_reason() {
                Some(reason) => {
                    list.finish(slot, lease);
                    Err(reason)
                }
                None => Ok(list.next(slot, lease)),
            });
            let exit = match next {
                Ok(Some((work, lease))) => {
                    self.found_work();
                    work.run(self.me.interrupts());
                    done = lease;
                    None
                }
                Ok(None) => self.park(),
                Err(reason) => Some(reason),
            };
            if exit.is_some_and(|reason| self.try_exit(reason)) {
                break;
            }
        }
        self.pool.acct(self.account).with(|list| list.detach(slot));
        self.pool.remove(&self.me);
    }

    /// Why it may take no more work, if so.
    fn exit_reason(&self) -> Option<ExitReason> {
        self.pool.acct(self.account).is_over_limit().then_some(ExitReason::OverLimit)
    }

    /// It has work. A worker that was not woken because this one was on its way is woken now.
    fn found_work(&mut self) {
        if core::mem::take(&mut self.is_searching) {
            self.pool.update_counts(self.account, WorkerCounts::stop_searching);
            // No error: there is a worker, this one.
            let _ = self.pool.wake_if_ready(self.account, MayStart::Yes);
        }
    }

    /// No work: park until woken. Returns the reason to exit, if any.
    fn park(&mut self) -> Option<ExitReason> {
        let is_searching = core::mem::take(&mut self.is_searching);
        self.me.prepare_park();
        let may_park = self.pool.update_counts(self.account, |counts| {
            if is_searching {
                counts.stop_searching();
            }
            counts.park(Arc::clone(&self.me))
        });
        if !may_park {
            return Some(ExitReason::Idle);
        }
        // For work that came before this worker was known to be idle. It may be the one that is
        // woken.
        let _ = self.pool.wake_if_ready(self.account, MayStart::Yes);
        let is_woken = self.me.park(process::monotonic_ns() + IDLE_NS)
            || !self.pool.update_counts(self.account, |counts| counts.unpark(|other| Arc::ptr_eq(other, &self.me)));
        self.is_searching = is_woken;
        if is_woken { None } else { Some(ExitReason::Idle) }
    }

    /// `false`: it stays, since there is work and no other worker, or it is within the limit again,
    /// or it is kept.
    fn try_exit(&mut self, reason: ExitReason) -> bool {
        let is_searching = self.is_searching;
        let kept = u32::from(reason == ExitReason::Idle && self.pool.is_kept());
        let exits = self.pool.update_counts(self.account, |counts| {
            let exits = counts.try_exit(reason, kept);
            if exits && is_searching {
                counts.stop_searching();
            }
            exits
        });
        if !exits {
            return false;
        }
        self.is_searching = false;
        while self.pool.wake_if_ready(self.account, MayStart::Yes).is_err() {
            if self.pool.update_counts(self.account, WorkerCounts::rejoin) {
                return false;
            }
        }
        true
    }
}
