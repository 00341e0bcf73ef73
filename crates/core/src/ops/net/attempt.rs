//! One attempt at a transfer: its context, what `EAGAIN` means for it, and what a receive tells
//! about the bytes that are left.

use super::socket::{AF_INET, AF_INET6, AF_UNIX, MSG_ERRQUEUE, MSG_OOB, MSG_PEEK, POLLIN, SOCK_STREAM, may_wait, must_be_socket};
use crate::ops::issue::{Issue, IssueCx};
use uringlet_sys::Errno;
use uringlet_sys::io::{self, Res};

/// The context of one try.
#[derive(Clone, Copy, Debug)]
pub(super) struct TryCtx {
    pub(super) fd: i32,
    /// A poll for the request has fired.
    pub(super) poll_fired: bool,
    /// A receive that gets less than it requests has emptied the stream.
    pub(super) short_read_drains: bool,
}

impl TryCtx {
    pub(super) fn of(cx: &IssueCx<'_>) -> Self {
        Self { fd: cx.file.fd, poll_fired: cx.poll_fired, short_read_drains: false }
    }

    /// The context of a receive.
    pub(super) fn receive(cx: &mut IssueCx<'_>, msg_flags: u32) -> Self {
        let is_plain = msg_flags & (MSG_PEEK | MSG_OOB | MSG_ERRQUEUE) == 0;
        Self { short_read_drains: is_plain && cx.ring.short_read_drains(cx.file.fd), ..Self::of(cx) }
    }

    /// The answer of a receive that is not to be tried before poll fires: it would find nothing, or
    /// what others wait for.
    pub(super) fn untried(&self, cx: &mut IssueCx<'_>, msg_flags: u32, mask: u32) -> Option<Issue> {
        if self.poll_fired || !may_wait(msg_flags) {
            return None;
        }
        if cx.ring.is_behind_others(self.fd) {
            return Some(Issue::PollFirst(mask));
        }
        (self.short_read_drains && cx.ring.known_empty(self.fd)).then_some(Issue::WouldBlock(mask))
    }
}

/// The first try of a `*_POLL_FIRST` request: arms poll, or fails if the request may not wait.
pub(super) fn poll_first(cx: &TryCtx, mask: u32, may_wait: bool) -> Option<Issue> {
    if cx.poll_fired {
        return None;
    }
    Some(match must_be_socket(cx.fd) {
        Err(errno) => errno.into(),
        Ok(()) => wait_first(mask, may_wait),
    })
}

/// The same of RECV, RECV_ZC and ACCEPT: as in the kernel, that the file is no socket is found when
/// it is ready.
pub(super) fn poll_any_first(cx: &TryCtx, mask: u32, may_wait: bool) -> Option<Issue> {
    if cx.poll_fired {
        return None;
    }
    Some(match must_be_socket(cx.fd) {
        Err(Errno::EBADF) => Errno::EBADF.into(),
        _ => wait_first(mask, may_wait),
    })
}

fn wait_first(mask: u32, may_wait: bool) -> Issue {
    if may_wait { Issue::PollFirst(mask) } else { Errno::EAGAIN.into() }
}

/// Counts consecutive tries that found nothing although poll had said "ready".
#[derive(Debug, Default)]
pub(super) struct SpuriousWakeups(u8);

impl SpuriousWakeups {
    /// After so many, poll is not used any longer.
    pub(super) const MOST: u8 = 16;

    /// Maps `EAGAIN` of a try. Usually poll says when to try again, but it knows nothing of some
    /// causes (the room in an unconnected datagram socket's receiver, a datagram socket that was
    /// shut down): a thread waits for those.
    pub(super) fn on_eagain(&mut self, cx: &TryCtx, mask: u32, msg_flags: u32) -> Issue {
        if !may_wait(msg_flags) {
            return Errno::EAGAIN.into();
        }
        let wants_else = msg_flags & (MSG_ERRQUEUE | MSG_OOB) != 0;
        if !cx.poll_fired && !wants_else {
            return Issue::WouldBlock(mask);
        }
        let is_ready = io::poll_now(cx.fd, mask).is_ok_and(|events| events != 0);
        if wants_else && is_ready {
            // The socket is ready for another event, and poll would fire again and again.
            return Errno::EAGAIN.into();
        }
        self.0 = if is_ready { self.0 + 1 } else { 0 };
        match self.0 {
            0 => Issue::WouldBlock(mask),
            1..=Self::MOST => Issue::PollFirst(mask),
            _ => Issue::Blocks,
        }
    }
}

/// A request that goes on stays armed: it never occupies a thread that waits.
pub(super) fn stay_armed(issue: Issue, mask: u32) -> Issue {
    if matches!(issue, Issue::Blocks) { Issue::WouldBlock(mask) } else { issue }
}

/// The error of a failed buffer selection, unless the file is no socket: that error comes first.
pub(super) fn no_buffer(fd: i32, errno: Errno) -> Issue {
    must_be_socket(fd).err().unwrap_or(errno).into()
}

/// Makes a call that may sleep, even on a non-blocking socket: on `EAGAIN` it waits for `mask`, as
/// io-wq does. Returns `EAGAIN` if poll keeps saying "ready" and the call keeps failing.
pub(super) fn blocking_call(fd: i32, mask: u32, may_wait: bool, mut call: impl FnMut() -> Res) -> Res {
    for _ in 0..SpuriousWakeups::MOST {
        match call() {
            Err(Errno::EAGAIN) if may_wait => io::poll_wait(fd, mask)?,
            other => return other,
        };
    }
    call()
}

/// What a socket can tell about the bytes that are left to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backlog {
    /// Nothing without another receive: datagrams.
    Unknown,
    /// Whether a receive would return at once, if only "end of file".
    Tcp,
    /// The number of bytes.
    UnixStream,
}

impl Backlog {
    pub(super) fn of(fd: i32) -> Self {
        match (io::socket_option(fd, io::SO_TYPE), io::socket_option(fd, io::SO_DOMAIN)) {
            (Ok(SOCK_STREAM), Ok(AF_INET | AF_INET6)) => Self::Tcp,
            (Ok(SOCK_STREAM), Ok(AF_UNIX)) => Self::UnixStream,
            _ => Self::Unknown,
        }
    }

    /// Whether more can be received after `n` of at most `wanted` bytes.
    pub(super) fn has_more(self, cx: &TryCtx, n: usize, wanted: usize) -> bool {
        let fd = cx.fd;
        match self {
            Self::Unknown => false,
            Self::Tcp if n < wanted && cx.short_read_drains => false,
            Self::Tcp => io::poll_now(fd, POLLIN).is_ok_and(|events| events & POLLIN != 0),
            // A receive that got less than it requested has emptied the stream.
            Self::UnixStream => n >= wanted && io::bytes_readable(fd).is_ok_and(|n| n > 0),
        }
    }
}

/// Whether the CQE of a single receive of `n` of at most `wanted` bytes has
/// `IORING_CQE_F_SOCK_NONEMPTY`.
///
/// A receive that got less than it requested has emptied the stream, so the system calls are made
/// only for a full one.
pub(super) fn is_nonempty(fd: i32, n: usize, wanted: usize, msg_flags: u32) -> bool {
    if n == 0 && wanted > 0 {
        return Backlog::of(fd) == Backlog::Tcp;
    }
    (n >= wanted || msg_flags & MSG_PEEK != 0) && io::bytes_readable(fd).is_ok_and(|n| n > 0) && Backlog::of(fd) != Backlog::Unknown
}
