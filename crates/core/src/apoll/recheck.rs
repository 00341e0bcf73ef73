//! Checking trust: what waits without having been looked at when it was armed is looked at once, a while later.

use super::{EPOLLET, EPOLLIN, PolledFile, Poller, RECHECK_EVENT};
use alloc::vec::Vec;
use uringlet_sys::fd::{EpollOp, TimerFd};

/// How long a request waits on trust before its file is looked at: between one and two of these, ns.
const RECHECK_NS: u64 = 50_000_000;

/// When an entry is to be checked.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecheckState {
    is_listed: bool,
    /// The round in which something was last armed on trust.
    round: u32,
}

/// The files that something waits for on trust.
#[derive(Debug, Default)]
pub(super) struct RecheckTimer {
    listed: Vec<i32>,
    round: u32,
    timer: Option<TimerFd>,
}

impl Poller {
    /// Something waits for a file on trust. `false`: it could not be checked, and so must not.
    pub(super) fn schedule_recheck(&mut self, fd: i32) -> bool {
        let Some(entry) = self.files.get_mut(&fd) else { return false };
        entry.recheck.round = self.recheck_timer.round;
        if entry.recheck.is_listed {
            return true;
        }
        if self.recheck_timer.listed.is_empty() && !self.start_round() {
            return false;
        }
        self.recheck_timer.listed.push(fd);
        self.files.get_mut(&fd).is_some_and(|entry| core::mem::replace(&mut entry.recheck.is_listed, true) || entry.recheck.is_listed)
    }

    /// Sets the timer, made on first use.
    fn start_round(&mut self) -> bool {
        if self.recheck_timer.timer.is_none() {
            let Ok(timer) = TimerFd::new() else { return false };
            // Each expiry is an edge; nobody needs to read it away.
            if self.epoll.ctl(EpollOp::Add, timer.number(), EPOLLIN | EPOLLET, RECHECK_EVENT).is_err() {
                return false;
            }
            self.recheck_timer.timer = Some(timer);
        }
        self.recheck_timer.timer.as_ref().is_some_and(|timer| timer.start(RECHECK_NS))
    }

    /// The timer has expired: looks at what was armed in an earlier round and still waits.
    pub(crate) fn recheck(&mut self) {
        let round = self.recheck_timer.round;
        self.recheck_timer.round = round.wrapping_add(1);
        let listed = core::mem::take(&mut self.recheck_timer.listed);
        for fd in listed {
            let Some(entry) = self.files.get_mut(&fd) else { continue };
            if stays_listed(entry, round) {
                self.recheck_timer.listed.push(fd);
            } else if !entry.waiting.is_empty() {
                // A file that is gone is waited for until cancel, as with any closed number.
                let _ = entry.register(&self.epoll, fd);
            }
        }
        if !self.recheck_timer.listed.is_empty() {
            self.start_round();
        }
    }
}

/// Whether it is too early; else it is off the list.
fn stays_listed(entry: &mut PolledFile, round: u32) -> bool {
    let stays = !entry.waiting.is_empty() && entry.recheck.round == round;
    entry.recheck.is_listed = stays;
    stays
}
