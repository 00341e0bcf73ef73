//! Arming poll: which requests wait for which file, in one epoll set a ring.
//!
//! A file is registered under its number, edge-triggered, and stays registered: arming costs a system call only when there
//! is something to be told to the epoll set. That rests on edges being seen:
//!
//! ```text
//!   try: EAGAIN (or: nothing is left of the stream)   every readiness from here on is an edge, reaped from here on
//!   arm: [`Rearm::TrustEdge`], the registration covers it   nothing to be done: that edge fires the request
//!   arm: [`Rearm::Recheck`], or it does not cover it      EPOLL_CTL_MOD: reports what holds already as a new edge
//! ```
//!
//! An edge from before the try that is reaped after it fires the request for nothing: it tries again.
//!
//! What is trusted is checked: a number that was closed by ways nobody sees and used again is registered no longer, and
//! would wait for ever. So whatever waits on trust for longer than `recheck::RECHECK_NS` is looked at anew, once, by one timer a
//! ring, which runs while there is something to check. A server that is busy never comes to that; an idle one pays one call a
//! request. A registered file is told from a later one of the same number by its node, which lives as long as it is trusted.
//!
//! A registration uses its number ([`fd_table::add_user`]), so that a close that is seen takes it out. One that reports
//! events which nobody waits for twice in a row ends: the program uses the file otherwise.
//!
//! While a multishot poll is on a file, its registration is not touched after an event: one event, one CQE, as the
//! kernel's wait queue gives it.

mod readiness;
mod recheck;
#[cfg(all(test, not(loom)))]
mod tests;

use crate::req_id::ReqId;
use crate::rsrc::files::FileNode;
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use recheck::RecheckTimer;
use uringlet_sys::fd::{EPOLLERR, EPOLLET, EPOLLHUP, EPOLLONESHOT, Epoll, EpollOp, EventFd};
use uringlet_sys::{Errno, fd_table};

/// The event of the ring's own bell.
pub(crate) const WAKE_EVENT: u64 = u64::MAX;
/// The event of the timer that checks trust.
pub(crate) const RECHECK_EVENT: u64 = u64::MAX - 1;
/// Reported by epoll whether asked for or not.
const ALWAYS: u32 = EPOLLERR | EPOLLHUP;
const EPOLLIN: u32 = 1;
const EPOLLPRI: u32 = 2;
const EPOLLRDHUP: u32 = 0x2000;

/// A request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PollWaiter {
    pub(crate) id: ReqId,
    pub(crate) mask: u32,
    /// Stays armed after an event.
    pub(crate) is_multishot: bool,
}

/// What is known of a file's readiness by whoever waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rearm {
    /// It was not ready a moment ago, under the same holding of the ring's lock: only a later edge matters.
    TrustEdge,
    /// Nothing: what holds already must be reported.
    Recheck,
}

/// A file's number, and whose it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PollTarget<'a> {
    pub(crate) fd: i32,
    /// The registered file; `None` for a number of the program's.
    pub(crate) node: Option<&'a Arc<FileNode>>,
}

/// A file in the epoll set, or about to be.
#[derive(Debug)]
struct PolledFile {
    waiting: Vec<PollWaiter>,
    /// What the epoll set has now; 0 for nothing.
    registered: u32,
    /// Tells its events from those of an earlier registration of the number.
    serial: u32,
    /// The registered file behind the number.
    node: Option<Weak<FileNode>>,
    /// The number may be given up unseen: nothing may be left behind in the epoll set.
    is_oneshot: bool,
    /// Events that nobody waited for, one after the other.
    unclaimed: u8,
    readiness: readiness::Readiness,
    recheck: recheck::RecheckState,
}

impl PolledFile {
    fn new(serial: u32, node: Option<&Arc<FileNode>>, waiting: Vec<PollWaiter>) -> Self {
        let (readiness, recheck) = Default::default();
        Self { waiting, registered: 0, serial, node: node.map(Arc::downgrade), is_oneshot: false, unclaimed: 0, readiness, recheck }
    }

    /// Whether it is about the file that `node` (or else the number) names.
    fn is_of(&self, node: Option<&Arc<FileNode>>) -> bool {
        match (&self.node, node) {
            (None, None) => true,
            (Some(own), Some(node)) => core::ptr::eq(own.as_ptr(), Arc::as_ptr(node)),
            _ => false,
        }
    }

    fn covers(&self, mask: u32) -> bool {
        self.registered != 0 && mask & !ALWAYS & !self.registered == 0
    }

    /// Brings the epoll set in line with what waits; it reports what holds already.
    fn register(&mut self, epoll: &Epoll, fd: i32) -> Result<(), Errno> {
        let mask = self.waiting.iter().fold(0, |mask, w| mask | w.mask);
        // A stream's end, and what stands beside it, say that a short read has not emptied it.
        let mask = if mask & EPOLLIN != 0 { mask | EPOLLRDHUP | EPOLLPRI } else { mask };
        let events = mask | if self.is_oneshot { EPOLLONESHOT } else { EPOLLET };
        let data = fd as u32 as u64 | u64::from(self.serial) << 32;
        let result = match epoll.ctl(EpollOp::Mod, fd, events, data) {
            Err(Errno::ENOENT) => {
                // Not the file that was registered.
                self.readiness = readiness::Readiness::of(fd);
                epoll.ctl(EpollOp::Add, fd, events, data)
            }
            other => other,
        };
        self.registered = if result.is_ok() { events } else { 0 };
        self.readiness.invalidate();
        result
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Poller {
    pub(crate) epoll: Arc<Epoll>,
    /// Wakes the driver: CQEs posted by others, AIO completions.
    pub(crate) wake_eventfd: EventFd,
    files: BTreeMap<i32, PolledFile>,
    armed: u32,
    next_serial: u32,
    recheck_timer: RecheckTimer,
}

impl Poller {
    /// # Errors
    /// `EMFILE`, `ENOMEM`.
    pub(crate) fn new() -> Result<Self, Errno> {
        let epoll = Arc::new(Epoll::new()?);
        let wake_eventfd = EventFd::new()?;
        // Edge-triggered: each signal is an event, and nobody needs to read it away.
        epoll.ctl(EpollOp::Add, wake_eventfd.number(), EPOLLIN | EPOLLET, WAKE_EVENT)?;
        Ok(Self { epoll, wake_eventfd, files: BTreeMap::new(), armed: 0, next_serial: 0, recheck_timer: RecheckTimer::default() })
    }

    /// Whether any request waits.
    #[inline]
    pub(crate) fn is_armed(&self) -> bool {
        self.armed > 0
    }

    /// Arms a request on a file.
    ///
    /// # Errors
    /// `EPERM` the file cannot be polled; `EBADF`, `ENOMEM`, `ENOSPC`.
    pub(crate) fn arm(&mut self, target: PollTarget<'_>, waiting: PollWaiter, rearm: Rearm) -> Result<(), Errno> {
        let fd = target.fd;
        let entry = self.entry(target);
        entry.waiting.push(waiting);
        entry.unclaimed = 0;
        let is_trusted = rearm == Rearm::TrustEdge && !waiting.is_multishot && entry.covers(waiting.mask);
        if is_trusted && self.schedule_recheck(fd) {
            self.armed += 1;
            return Ok(());
        }
        self.register(fd, waiting.id)
    }

    fn register(&mut self, fd: i32, id: ReqId) -> Result<(), Errno> {
        let Some(entry) = self.files.get_mut(&fd) else { return Err(Errno::EBADF) };
        let result = entry.register(&self.epoll, fd);
        self.armed += 1;
        if result.is_err() {
            self.disarm(fd, id);
            if self.files.get(&fd).is_some_and(|entry| entry.waiting.is_empty()) {
                self.remove_entry(fd);
            }
        }
        result
    }

    /// The entry of a file; one of an earlier file of the same number is not it.
    fn entry(&mut self, target: PollTarget<'_>) -> &mut PolledFile {
        let is_stale = self.files.get(&target.fd).is_some_and(|entry| !entry.is_of(target.node));
        let earlier = if is_stale { self.remove_entry(target.fd) } else { None };
        let next_serial = &mut self.next_serial;
        self.files.entry(target.fd).or_insert_with(|| {
            if target.node.is_none() {
                fd_table::add_user(target.fd);
            }
            *next_serial = next_serial.wrapping_add(1);
            PolledFile::new(*next_serial, target.node, earlier.map_or_else(Vec::new, |entry| entry.waiting))
        })
    }

    /// Forgets a request. Its file may still report once more, to nobody.
    pub(crate) fn disarm(&mut self, fd: i32, id: ReqId) {
        if let Some(entry) = self.files.get_mut(&fd) {
            let before = entry.waiting.len();
            entry.waiting.retain(|w| w.id != id);
            self.armed -= (before - entry.waiting.len()) as u32;
        }
    }

    /// An event of a file, by its data: the requests it concerns. One-shot ones are disarmed by it; multishot ones stay.
    pub(crate) fn on_event(&mut self, data: u64, events: u32, ready: &mut Vec<PollWaiter>) {
        let (fd, serial) = (data as u32 as i32, (data >> 32) as u32);
        let Some(entry) = self.files.get_mut(&fd).filter(|entry| entry.serial == serial) else { return };
        entry.readiness.note(events);
        if entry.is_oneshot {
            entry.registered = 0;
        }
        let before = entry.waiting.len();
        let is_claimed = entry.waiting.iter().any(|w| matches_events(w, events));
        entry.waiting.retain(|w| {
            let concerns = matches_events(w, events);
            if concerns {
                ready.push(*w);
            }
            !concerns || w.is_multishot
        });
        self.armed -= (before - entry.waiting.len()) as u32;
        if entry.is_oneshot && !entry.waiting.is_empty() {
            let _ = entry.register(&self.epoll, fd);
        }
        if is_claimed {
            entry.unclaimed = 0;
        } else {
            self.note_unclaimed(fd);
        }
    }

    /// The first time it is what comes before its request is made. The second time nobody wants to know.
    fn note_unclaimed(&mut self, fd: i32) {
        let Some(entry) = self.files.get_mut(&fd) else { return };
        entry.unclaimed = entry.unclaimed.saturating_add(1);
        if entry.unclaimed < 2 {
            return;
        }
        entry.unclaimed = 0;
        if entry.waiting.is_empty() {
            self.remove_file(fd);
        } else {
            // It was pollable a moment ago; if it is closed now, then as with any closed number they wait for cancel.
            let _ = entry.register(&self.epoll, fd);
        }
    }

    /// Takes everything that waits on a number that is about to be closed.
    pub(crate) fn remove_file(&mut self, fd: i32) -> Vec<PollWaiter> {
        if self.files.get(&fd).is_some_and(|entry| entry.registered != 0) {
            let _ = self.epoll.ctl(EpollOp::Del, fd, 0, 0);
        }
        let Some(entry) = self.remove_entry(fd) else { return Vec::new() };
        self.armed -= entry.waiting.len() as u32;
        entry.waiting
    }

    /// A registered file has left its slot, and only requests hold it still: its number will be closed unseen, while the file
    /// may live on elsewhere. What is armed on it leaves nothing behind.
    pub(crate) fn make_oneshot(&mut self, fd: i32) {
        if let Some(entry) = self.files.get_mut(&fd) {
            entry.is_oneshot = true;
            if entry.registered != 0 {
                let _ = entry.register(&self.epoll, fd);
            }
        }
    }

    /// The number was given to a new file: an earlier one was closed unseen.
    pub(crate) fn invalidate(&mut self, fd: i32) {
        if let Some(entry) = self.files.get_mut(&fd) {
            entry.registered = 0;
        }
    }

    fn remove_entry(&mut self, fd: i32) -> Option<PolledFile> {
        let entry = self.files.remove(&fd)?;
        if entry.node.is_none() {
            fd_table::drop_user(fd);
        }
        Some(entry)
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.files.iter().filter(|(_, entry)| entry.node.is_none()).for_each(|(&fd, _)| fd_table::drop_user(fd));
    }
}

fn matches_events(waiting: &PollWaiter, events: u32) -> bool {
    events & (waiting.mask | ALWAYS) != 0
}
