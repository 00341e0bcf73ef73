//! The re-check of trusted edges: a file that something waits for on trust is registered again,
//! once, a while later.
//!
//! Time is divided into rounds, each ended by one expiry of the timer. A file that was armed on
//! trust in a round is re-checked at the end of the next round, if something still waits for it.

use super::events::RECHECK_EVENT;
use alloc::vec::Vec;
use uringlet_sys::fd::{EPOLLET, EPOLLIN, Epoll, EpollOp, TimerFd};

/// The length of a round, ns: a request waits on trust for between one and two of these.
pub(super) const RECHECK_NS: u64 = 50_000_000;

/// When a file is to be re-checked.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecheckState {
    is_listed: bool,
    /// The round in which something was last armed on trust.
    round: u32,
}

impl RecheckState {
    /// At the end of `round`: whether the file stays listed, since it is too early for a re-check.
    pub(super) fn stays_listed(&mut self, has_waiters: bool, round: u32) -> bool {
        self.is_listed = has_waiters && self.round == round;
        self.is_listed
    }
}

/// The files that something waits for on trust.
#[derive(Debug, Default)]
pub(super) struct RecheckTimer {
    listed: Vec<i32>,
    round: u32,
    timer: Option<TimerFd>,
}

impl RecheckTimer {
    /// Something waits for a file on trust. `false`: it cannot be re-checked, and must not be
    /// trusted.
    pub(super) fn schedule(&mut self, epoll: &Epoll, fd: i32, state: &mut RecheckState) -> bool {
        state.round = self.round;
        if state.is_listed {
            return true;
        }
        if self.listed.is_empty() && !self.start_round(epoll) {
            return false;
        }
        self.listed.push(fd);
        state.is_listed = true;
        true
    }

    /// Starts the timer, which is made on first use.
    fn start_round(&mut self, epoll: &Epoll) -> bool {
        if self.timer.is_none() {
            let Ok(timer) = TimerFd::new() else { return false };
            // Each expiry is an edge, which needs no read to be cleared.
            if epoll.ctl(EpollOp::Add, timer.number(), EPOLLIN | EPOLLET, RECHECK_EVENT).is_err() {
                return false;
            }
            self.timer = Some(timer);
        }
        self.timer.as_ref().is_some_and(|timer| timer.start(RECHECK_NS))
    }

    /// The timer has expired: the round that ends, and the files that were listed.
    pub(super) fn end_round(&mut self) -> (u32, Vec<i32>) {
        let round = self.round;
        self.round = round.wrapping_add(1);
        (round, core::mem::take(&mut self.listed))
    }

    /// Lists the files for which it was too early, and starts the next round if there are any.
    pub(super) fn keep(&mut self, epoll: &Epoll, files: Vec<i32>) {
        self.listed = files;
        if !self.listed.is_empty() {
            self.start_round(epoll);
        }
    }
}
