//! The poller of a ring: arms, fires and disarms. The protocol is at the top of [`super`].

use super::events::{CLOCK_EVENT, WAKE_EVENT};
use super::fd_map::FdMap;
use super::file::{PollTarget, PollWaiter, PolledFile, Rearm};
use super::readiness::Readiness;
use super::recheck::RecheckTimer;
use crate::req_id::ReqId;
use alloc::sync::Arc;
use alloc::vec::Vec;
use uringlet_sys::Errno;
use uringlet_sys::fd::{ClockStep, EPOLLET, EPOLLIN, Epoll, EpollOp, EventFd};

/// See the module.
#[derive(Debug)]
pub(crate) struct Poller {
    pub(crate) epoll: Arc<Epoll>,
    /// Signalled to wake the thread that waits: CQEs posted by other threads, AIO completions.
    pub(crate) wake_eventfd: Arc<EventFd>,
    /// Has the eventfd alone: for a driver that is not to be woken by files. Made on first use.
    wakeups: Option<Arc<Epoll>>,
    pub(super) files: FdMap<PolledFile>,
    armed: u32,
    next_serial: u32,
    recheck_timer: RecheckTimer,
    /// Made with the first deadline on a clock that may step.
    clock_step: Option<ClockStep>,
}

impl Poller {
    /// # Errors
    /// `EMFILE`, `ENOMEM`.
    pub(crate) fn new(wake_eventfd: Arc<EventFd>) -> Result<Self, Errno> {
        let epoll = Arc::new(Epoll::new()?);
        // Edge-triggered: each signal is an event, which needs no read to be cleared.
        epoll.ctl(EpollOp::Add, wake_eventfd.number(), EPOLLIN | EPOLLET, WAKE_EVENT)?;
        Ok(Self {
            epoll,
            wake_eventfd,
            wakeups: None,
            files: FdMap::default(),
            armed: 0,
            next_serial: 0,
            recheck_timer: RecheckTimer::default(),
            clock_step: None,
        })
    }

    /// The epoll set of the wake-ups alone.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`.
    pub(crate) fn wakeups(&mut self) -> Result<Arc<Epoll>, Errno> {
        if let Some(epoll) = &self.wakeups {
            return Ok(Arc::clone(epoll));
        }
        let epoll = Arc::new(Epoll::new()?);
        epoll.ctl(EpollOp::Add, self.wake_eventfd.number(), EPOLLIN | EPOLLET, WAKE_EVENT)?;
        self.wakeups = Some(Arc::clone(&epoll));
        Ok(epoll)
    }

    /// From now on a step of the wall clock, or the end of a suspend, is an event.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOMEM`; `EPERM`, `EINVAL` where there is no such timer.
    pub(crate) fn watch_clock(&mut self) -> Result<(), Errno> {
        if self.clock_step.is_none() {
            let step = ClockStep::new()?;
            // Each step is an edge, which needs no read to be cleared.
            self.epoll.ctl(EpollOp::Add, step.number(), EPOLLIN | EPOLLET, CLOCK_EVENT)?;
            self.clock_step = Some(step);
        }
        Ok(())
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
    pub(crate) fn arm(&mut self, target: PollTarget, waiting: PollWaiter, rearm: Rearm) -> Result<(), Errno> {
        let fd = target.fd;
        let Self { epoll, files, recheck_timer, next_serial, .. } = self;
        let entry = files.entry(fd).or_insert_with(|| PolledFile::new(&target, next_serial));
        if !entry.is_of(target.node.as_ref()) {
            let waiting = entry.end(fd);
            *entry = PolledFile::new(&target, next_serial);
            entry.waiting = waiting;
        }
        entry.waiting.push(waiting);
        entry.unclaimed = 0;
        let is_trusted = rearm == Rearm::TrustEdge && !waiting.is_multishot && entry.covers(waiting.mask);
        if is_trusted && recheck_timer.schedule(epoll, fd, &mut entry.recheck) {
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

    /// Disarms a request. Its file may still report once more.
    pub(crate) fn disarm(&mut self, fd: i32, id: ReqId) {
        if let Some(entry) = self.files.get_mut(&fd) {
            let before = entry.waiting.len();
            entry.waiting.retain(|w| w.id != id);
            self.armed -= (before - entry.waiting.len()) as u32;
        }
    }

    /// An event of a file, by its data: adds the requests it fires to `ready`. It disarms one-shot
    /// requests; multishot ones stay.
    pub(crate) fn on_event(&mut self, data: u64, events: u32, ready: &mut Vec<PollWaiter>) {
        let (fd, serial) = (data as u32 as i32, (data >> 32) as u32);
        let Some(entry) = self.files.get_mut(&fd).filter(|entry| entry.serial == serial) else { return };
        entry.readiness.note(events);
        let before = entry.waiting.len();
        let is_claimed = entry.waiting.iter().any(|w| w.matches(events));
        entry.waiting.retain(|w| {
            let fires = w.matches(events);
            if fires {
                ready.push(*w);
            }
            !fires || w.is_multishot
        });
        self.armed -= (before - entry.waiting.len()) as u32;
        if is_claimed {
            entry.unclaimed = 0;
        } else {
            self.note_unclaimed(fd);
        }
    }

    /// The first unclaimed event may precede its request; the second ends the registration.
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
            // It was pollable a moment ago. If it is closed by now, the requests wait until
            // cancelled, as with any closed number.
            let _ = entry.register(&self.epoll, fd);
        }
    }

    /// Takes everything that waits on a number that is about to be closed.
    pub(crate) fn remove_file(&mut self, fd: i32) -> Vec<PollWaiter> {
        if self.files.get(&fd).is_some_and(|entry| entry.registered != 0) {
            let _ = self.epoll.ctl(EpollOp::Del, fd, 0, 0);
        }
        let waiting = self.remove_entry(fd);
        self.armed -= waiting.len() as u32;
        waiting
    }

    /// The number was given to a new file: an earlier one was closed unseen.
    pub(crate) fn invalidate(&mut self, fd: i32) {
        if let Some(entry) = self.files.get_mut(&fd) {
            entry.registered = 0;
        }
    }

    fn remove_entry(&mut self, fd: i32) -> Vec<PollWaiter> {
        self.files.remove(&fd).map_or_else(Vec::new, |mut entry| entry.end(fd))
    }
}

/// The re-check of trusted edges ([`super::recheck`]).
impl Poller {
    /// The timer has expired: re-checks what was armed in an earlier round and still waits.
    pub(crate) fn recheck(&mut self) {
        let (round, mut files) = self.recheck_timer.end_round();
        files.retain(|&fd| {
            let Some(entry) = self.files.get_mut(&fd) else { return false };
            let has_waiters = !entry.waiting.is_empty();
            let stays = entry.recheck.stays_listed(has_waiters, round);
            if !stays && has_waiters {
                // Requests on a file that is gone wait until cancelled, as with any closed number.
                let _ = entry.register(&self.epoll, fd);
            }
            stays
        });
        self.recheck_timer.keep(&self.epoll, files);
    }
}

/// The readiness cache ([`super::readiness`]).
impl Poller {
    /// What is known of a file that is about to be received from.
    fn readiness(&mut self, fd: i32) -> Option<&mut Readiness> {
        let entry = self.files.get_mut(&fd)?;
        // Its edges are of use, even if the receives that they announce need not wait.
        entry.unclaimed = 0;
        (entry.registered & EPOLLIN != 0 && entry.readiness.is_conclusive()).then_some(&mut entry.readiness)
    }

    /// Whether a receive from this file would find nothing, as far as its edges tell.
    pub(crate) fn known_empty(&mut self, fd: i32) -> bool {
        self.readiness(fd).is_some_and(|readiness| readiness.is_empty)
    }

    /// Whether a receive that gets less than it asked for has emptied this file.
    pub(crate) fn short_read_drains(&mut self, fd: i32) -> bool {
        self.readiness(fd).is_some()
    }

    /// Whether a request waits until this file can be read: an edge that comes, or is under way,
    /// will fire it, and what is armed behind it.
    pub(crate) fn is_awaited(&self, fd: i32) -> bool {
        let is_receive = |w: &PollWaiter| !w.is_multishot && w.mask & EPOLLIN != 0;
        self.files.get(&fd).is_some_and(|entry| entry.registered & EPOLLIN != 0 && entry.waiting.iter().any(is_receive))
    }

    /// A receive has emptied the file, under this holding of the ring's lock.
    pub(crate) fn note_empty(&mut self, fd: i32) {
        if let Some(readiness) = self.readiness(fd) {
            readiness.is_empty = true;
        }
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.files.iter_mut().for_each(|(&fd, entry)| drop(entry.end(fd)));
    }
}
