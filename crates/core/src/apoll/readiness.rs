//! What the edges of a TCP socket tell about it: whether a receive would find anything.
//!
//! A receive that got less than it asked for has emptied the stream, and what comes then is an edge. So the next one need
//! not be tried before that edge. Not where the stream has ended or holds urgent data, which cut a receive short as well;
//! not where the socket holds back small amounts (`SO_RCVLOWAT`).

use super::{EPOLLIN, EPOLLPRI, EPOLLRDHUP, Poller};
use uringlet_sys::fd::{EPOLLERR, EPOLLHUP};
use uringlet_sys::io;

const SPECIAL: u32 = EPOLLERR | EPOLLHUP | EPOLLRDHUP | EPOLLPRI;
const SOCK_STREAM: i32 = 1;
const IPPROTO_TCP: i32 = 6;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Readiness {
    is_tcp: bool,
    /// It has ended, failed, or has urgent data: nothing is concluded from a short read.
    is_special: bool,
    is_empty: bool,
}

impl Readiness {
    pub(super) fn of(fd: i32) -> Self {
        let is = |option, value| io::socket_option(fd, option) == Ok(value);
        let is_tcp = is(io::SO_TYPE, SOCK_STREAM) && is(io::SO_PROTOCOL, IPPROTO_TCP) && is(io::SO_RCVLOWAT, 1);
        Self { is_tcp, ..Self::default() }
    }

    /// An edge.
    pub(super) fn note(&mut self, events: u32) {
        self.is_special |= events & SPECIAL != 0;
        self.is_empty &= events & (EPOLLIN | SPECIAL) == 0;
    }

    /// What was concluded is to be found out again.
    pub(super) fn invalidate(&mut self) {
        self.is_empty = false;
    }
}

impl Poller {
    /// What is known of a file that is about to be received from.
    fn readiness(&mut self, fd: i32) -> Option<&mut Readiness> {
        let entry = self.files.get_mut(&fd)?;
        // Its edges are of use, even if the receives that they announce need not wait.
        entry.unclaimed = 0;
        (entry.registered & EPOLLIN != 0 && entry.readiness.is_tcp && !entry.readiness.is_special).then_some(&mut entry.readiness)
    }

    /// Whether a receive from this file would find nothing, for all that its edges tell.
    pub(crate) fn known_empty(&mut self, fd: i32) -> bool {
        self.readiness(fd).is_some_and(|readiness| readiness.is_empty)
    }

    /// Whether a receive that gets less than it asked for empties this file.
    pub(crate) fn short_read_drains(&mut self, fd: i32) -> bool {
        self.readiness(fd).is_some()
    }

    /// A receive has emptied it.
    pub(crate) fn note_empty(&mut self, fd: i32) {
        if let Some(readiness) = self.readiness(fd) {
            readiness.is_empty = true;
        }
    }
}
