//! Arming poll: which requests wait for which file, in one epoll set a ring.
//!
//! A file is registered under its number, once, and stays registered but disabled between uses. Arming is one
//! `EPOLL_CTL_MOD`, which looks at the file's readiness anew: so between "try, EAGAIN" and "arm" nothing can be missed,
//! and a number that was closed and used again meanwhile answers ENOENT and is added afresh.
//!
//! One-shot requests arm with EPOLLONESHOT. While a multishot poll is on a file, its registration is edge-triggered
//! instead and is not touched after an event: one event, one CQE, as the kernel's wait queue gives it.

use crate::request::ReqId;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use uringlet_sys::Errno;
use uringlet_sys::fd::{EPOLLERR, EPOLLET, EPOLLHUP, EPOLLONESHOT, Epoll, EpollOp, EventFd};

/// The event of the ring's own bell.
pub(crate) const BELL: u64 = u64::MAX;
/// Reported by epoll whether asked for or not.
const ALWAYS: u32 = EPOLLERR | EPOLLHUP;

/// A request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) id: ReqId,
    pub(crate) mask: u32,
    /// Stays armed after an event.
    pub(crate) is_multishot: bool,
}

#[derive(Debug, Default)]
struct Armed {
    waiting: Vec<Waiting>,
    /// What the epoll set has now: the mask, and whether edge-triggered.
    registered: u32,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Poller {
    pub(crate) epoll: Arc<Epoll>,
    /// Wakes the driver: CQEs posted by others, AIO completions.
    pub(crate) bell: EventFd,
    files: BTreeMap<i32, Armed>,
    armed: u32,
}

impl Poller {
    /// # Errors
    /// `EMFILE`, `ENOMEM`.
    pub(crate) fn new() -> Result<Self, Errno> {
        let epoll = Arc::new(Epoll::new()?);
        let bell = EventFd::new()?;
        // Edge-triggered: each signal is an event, and nobody needs to read it away.
        epoll.ctl(EpollOp::Add, bell.number(), 1 | EPOLLET, BELL)?;
        Ok(Self { epoll, bell, files: BTreeMap::new(), armed: 0 })
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
    pub(crate) fn arm(&mut self, fd: i32, waiting: Waiting) -> Result<(), Errno> {
        let armed = self.files.entry(fd).or_default();
        armed.waiting.push(waiting);
        match register(&self.epoll, fd, armed) {
            Ok(()) => {
                self.armed += 1;
                Ok(())
            }
            Err(errno) => {
                armed.waiting.pop();
                if armed.waiting.is_empty() {
                    self.files.remove(&fd);
                }
                Err(errno)
            }
        }
    }

    /// Forgets a request. Its file may still report once more, to nobody.
    pub(crate) fn disarm(&mut self, fd: i32, id: ReqId) {
        if let Some(armed) = self.files.get_mut(&fd) {
            let before = armed.waiting.len();
            armed.waiting.retain(|w| w.id != id);
            self.armed -= (before - armed.waiting.len()) as u32;
        }
    }

    /// An event of a file: the requests it concerns. One-shot ones are disarmed by it; multishot ones stay.
    pub(crate) fn fired(&mut self, fd: i32, events: u32, ready: &mut Vec<Waiting>) {
        let Some(armed) = self.files.get_mut(&fd) else { return };
        if armed.registered & EPOLLET == 0 {
            armed.registered = 0;
        }
        let before = armed.waiting.len();
        armed.waiting.retain(|w| {
            let concerns = events & (w.mask | ALWAYS) != 0;
            if concerns {
                ready.push(*w);
            }
            !concerns || w.is_multishot
        });
        self.armed -= (before - armed.waiting.len()) as u32;
        if !armed.waiting.is_empty() && armed.registered == 0 {
            // Others wait for something else on this file. It was pollable a moment ago; if it is closed now, then as
            // with any closed number they wait for cancel.
            let _ = register(&self.epoll, fd, armed);
        }
    }

    /// Takes everything that waits on a number that is about to be closed.
    pub(crate) fn take(&mut self, fd: i32) -> Vec<Waiting> {
        let Some(armed) = self.files.remove(&fd) else { return Vec::new() };
        let _ = self.epoll.ctl(EpollOp::Del, fd, 0, 0);
        self.armed -= armed.waiting.len() as u32;
        armed.waiting
    }
}

/// Brings the epoll set in line with what waits.
fn register(epoll: &Epoll, fd: i32, armed: &mut Armed) -> Result<(), Errno> {
    let is_edge = armed.waiting.iter().any(|w| w.is_multishot);
    let mask = armed.waiting.iter().fold(0, |mask, w| mask | w.mask);
    let events = mask | if is_edge { EPOLLET } else { EPOLLONESHOT };
    let data = fd as u32 as u64;
    let result = match epoll.ctl(EpollOp::Mod, fd, events, data) {
        Err(Errno::ENOENT) => epoll.ctl(EpollOp::Add, fd, events, data),
        other => other,
    };
    armed.registered = if result.is_ok() { events } else { 0 };
    result
}
