//! The readiness cache of a TCP socket: what its edges say about whether a receive would find data.
//!
//! A receive that got less than it asked for has emptied the stream, and data that comes then is an
//! edge. So the next receive need not be tried before that edge. This does not hold for a stream
//! that has ended or holds urgent data, which cut a receive short as well, nor for a socket that
//! holds back small amounts (`SO_RCVLOWAT`).

use super::events::{EPOLLPRI, EPOLLRDHUP};
use uringlet_sys::fd::{EPOLLERR, EPOLLHUP, EPOLLIN};
use uringlet_sys::io;

const SPECIAL: u32 = EPOLLERR | EPOLLHUP | EPOLLRDHUP | EPOLLPRI;
const SOCK_STREAM: i32 = 1;
const IPPROTO_TCP: i32 = 6;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Readiness {
    pub(super) is_tcp: bool,
    /// It has ended, failed, or has urgent data: a short read says nothing.
    is_special: bool,
    pub(super) is_empty: bool,
}

impl Readiness {
    pub(super) fn of(fd: i32) -> Self {
        let is = |option, value| io::socket_option(fd, option) == Ok(value);
        let is_tcp = is(io::SO_TYPE, SOCK_STREAM) && is(io::SO_PROTOCOL, IPPROTO_TCP) && is(io::SO_RCVLOWAT, 1);
        Self { is_tcp, ..Self::default() }
    }

    /// Whether a short read empties the stream.
    pub(super) fn is_conclusive(self) -> bool {
        self.is_tcp && !self.is_special
    }

    /// An edge.
    pub(super) fn note(&mut self, events: u32) {
        self.is_special |= events & SPECIAL != 0;
        self.is_empty &= events & (EPOLLIN | SPECIAL) == 0;
    }

    /// The file was registered again: the stream may hold data.
    pub(super) fn invalidate(&mut self) {
        self.is_empty = false;
    }
}
