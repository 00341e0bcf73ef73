//! A polled file: its registration in the epoll set, and the requests that wait for it.

use super::events::{ALWAYS, EPOLLPRI, EPOLLRDHUP};
use super::readiness::Readiness;
use super::recheck::RecheckState;
use crate::req_id::ReqId;
use crate::rsrc::files::FileNode;
use alloc::sync::Weak;
use alloc::vec::Vec;
use uringlet_sys::fd::{EPOLLET, EPOLLIN, Epoll, EpollOp};
use uringlet_sys::{Errno, fd_table};

/// A request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PollWaiter {
    pub(crate) id: ReqId,
    pub(crate) mask: u32,
    /// Stays armed after an event.
    pub(crate) is_multishot: bool,
}

impl PollWaiter {
    pub(super) fn matches(&self, events: u32) -> bool {
        events & (self.mask | ALWAYS) != 0
    }
}

/// How a request is armed on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rearm {
    /// The file was not ready under this holding of the ring's lock: only a later edge matters.
    TrustEdge,
    /// The file's readiness is not known: what already holds must be reported.
    Recheck,
}

/// The file that a request waits for.
#[derive(Clone, Debug)]
pub(crate) struct PollTarget {
    pub(crate) fd: i32,
    /// The engine's file; `None` for a number of the program's.
    pub(crate) node: Option<Weak<FileNode>>,
}

/// A file in the epoll set, or about to be.
#[derive(Debug)]
pub(super) struct PolledFile {
    pub(super) waiting: Vec<PollWaiter>,
    /// The events that the epoll set has now; 0 for none.
    pub(super) registered: u32,
    /// Tells its events from those of an earlier registration of the number.
    pub(super) serial: u32,
    /// The registered file behind the number.
    node: Option<Weak<FileNode>>,
    /// Events in a row that no request waited for.
    pub(super) unclaimed: u8,
    pub(super) readiness: Readiness,
    pub(super) recheck: RecheckState,
}

impl PolledFile {
    /// Not registered yet. Uses the number, if it is one of the program's.
    pub(super) fn new(target: &PollTarget, next_serial: &mut u32) -> Self {
        if target.node.is_none() {
            fd_table::add_user(target.fd);
        }
        *next_serial = next_serial.wrapping_add(1);
        let (readiness, recheck) = Default::default();
        Self { waiting: Vec::new(), registered: 0, serial: *next_serial, node: target.node.clone(), unclaimed: 0, readiness, recheck }
    }

    /// Its number is used no longer. Returns the requests that wait.
    pub(super) fn end(&mut self, fd: i32) -> Vec<PollWaiter> {
        if self.node.is_none() {
            fd_table::drop_user(fd);
        }
        core::mem::take(&mut self.waiting)
    }

    /// Whether it is the file that `node` (or else the number) names.
    pub(super) fn is_of(&self, node: Option<&Weak<FileNode>>) -> bool {
        match (&self.node, node) {
            (None, None) => true,
            (Some(own), Some(node)) => own.ptr_eq(node),
            _ => false,
        }
    }

    pub(super) fn covers(&self, mask: u32) -> bool {
        self.registered != 0 && mask & !ALWAYS & !self.registered == 0
    }

    /// Registers what the waiters wait for; the epoll set reports what already holds.
    pub(super) fn register(&mut self, epoll: &Epoll, fd: i32) -> Result<(), Errno> {
        let mask = self.waiting.iter().fold(0, |mask, w| mask | w.mask);
        // A stream's end and urgent data say that a short read has not emptied it.
        let mask = if mask & EPOLLIN != 0 { mask | EPOLLRDHUP | EPOLLPRI } else { mask };
        let events = mask | EPOLLET;
        let data = u64::from(fd.cast_unsigned()) | u64::from(self.serial) << 32;
        let result = match epoll.ctl(EpollOp::Mod, fd, events, data) {
            Err(Errno::ENOENT) => {
                // Not the file that was registered.
                self.readiness = Readiness::of(fd);
                epoll.ctl(EpollOp::Add, fd, events, data)
            }
            other => other,
        };
        self.registered = if result.is_ok() { events } else { 0 };
        self.readiness.invalidate();
        result
    }
}
