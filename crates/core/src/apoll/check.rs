//! Checking trust: what waits without having been looked at when it was armed is looked at once, a while later.

use super::{CHECK, EPOLLET, EPOLLIN, Entry, Poller};
use alloc::vec::Vec;
use uringlet_sys::fd::{EpollOp, TimerFd};

/// How long a request waits on trust before its file is looked at: between one and two of these, ns.
const CHECK_NS: u64 = 50_000_000;

/// When an entry is to be checked.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Due {
    is_listed: bool,
    /// The round in which something was last armed on trust.
    round: u32,
}

/// The files that something waits for on trust.
#[derive(Debug, Default)]
pub(super) struct Checks {
    listed: Vec<i32>,
    round: u32,
    timer: Option<TimerFd>,
}

impl Poller {
    /// Something waits for a file on trust. `false`: it could not be checked, and so must not.
    pub(super) fn will_check(&mut self, fd: i32) -> bool {
        let Some(entry) = self.files.get_mut(&fd) else { return false };
        entry.check.round = self.checks.round;
        if entry.check.is_listed {
            return true;
        }
        if self.checks.listed.is_empty() && !self.start_round() {
            return false;
        }
        self.checks.listed.push(fd);
        self.files.get_mut(&fd).is_some_and(|entry| core::mem::replace(&mut entry.check.is_listed, true) || entry.check.is_listed)
    }

    /// Sets the timer, made on first use.
    fn start_round(&mut self) -> bool {
        if self.checks.timer.is_none() {
            let Ok(timer) = TimerFd::new() else { return false };
            // Each expiry is an edge; nobody needs to read it away.
            if self.epoll.ctl(EpollOp::Add, timer.number(), EPOLLIN | EPOLLET, CHECK).is_err() {
                return false;
            }
            self.checks.timer = Some(timer);
        }
        self.checks.timer.as_ref().is_some_and(|timer| timer.start(CHECK_NS))
    }

    /// The timer has expired: looks at what was armed in an earlier round and still waits.
    pub(crate) fn check(&mut self) {
        let round = self.checks.round;
        self.checks.round = round.wrapping_add(1);
        let listed = core::mem::take(&mut self.checks.listed);
        for fd in listed {
            let Some(entry) = self.files.get_mut(&fd) else { continue };
            if stays_listed(entry, round) {
                self.checks.listed.push(fd);
            } else if !entry.waiting.is_empty() {
                // A file that is gone is waited for until cancel, as with any closed number.
                let _ = entry.register(&self.epoll, fd);
            }
        }
        if !self.checks.listed.is_empty() {
            self.start_round();
        }
    }
}

/// Whether it is too early; else it is off the list.
fn stays_listed(entry: &mut Entry, round: u32) -> bool {
    let stays = !entry.waiting.is_empty() && entry.check.round == round;
    entry.check.is_listed = stays;
    stays
}
