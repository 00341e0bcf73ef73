//! Receive bundles: one CQE for bytes in several provided buffers.
//!
//! Without a length the number of buffers to take is unknown: the first try takes one. If it was
//! filled and the socket has more, a second receive continues behind it, once, and the same CQE
//! reports both. A bundle that has taken the ring's last buffer ends its request. Without a length
//! it does not, if it was known that the socket had no more bytes than the bundle: then the kernel
//! takes a buffer for those bytes, and does not look whether there is another.

use super::Recv;
use crate::ops::issue::{Issue, IssueCx};
use crate::ops::net::attempt::Backlog;
use crate::ops::net::socket::{MSG_TRUNC, nonblocking};
use crate::ops::outcome::Outcome;
use crate::ops::turn::Turn;
use crate::rsrc::buf_ring::{BundleLimit, SelectedBuf};
use uringlet_abi::cqe;
use uringlet_sys::io;

impl Recv {
    /// The limit of the buffers that the next try takes.
    pub(super) fn extent(&self) -> BundleLimit {
        match (self.cap, self.left_in_all) {
            (0, None) => BundleLimit::First,
            (0, Some(left)) => BundleLimit::All(left),
            (cap, left) => BundleLimit::All(cap.min(left.unwrap_or(cap))),
        }
    }

    /// Continues after a try that filled its buffers.
    pub(super) fn append(&mut self, cx: &mut IssueCx<'_>, issue: &mut Issue) {
        let (Issue::Complete(outcome) | Issue::More(outcome)) = issue else { return };
        let Some(selected) = &self.selected else { return };
        let is_filled = outcome.res > 0 && outcome.res as u32 == selected.len;
        let is_limited =
            selected.is_cut() || (self.is_multishot && self.cap != 0 && outcome.res as u32 >= self.cap) || self.left_in_all == Some(0);
        let has_all_known = self.cap == 0 && self.follows_nonempty && outcome.res > 1 && outcome.flags & cqe::SOCK_NONEMPTY == 0;
        let mut is_last = selected.is_last() && !has_all_known;
        if is_filled && !is_limited && !is_last && self.may_append(cx.file.fd) {
            is_last = self.receive_rest(cx, outcome) || self.left_in_all == Some(0);
        }
        if is_last && let Issue::More(outcome) = issue {
            *issue = Issue::Complete(*outcome);
            self.turn = Turn::default();
        }
    }

    /// Only a stream can tell how much is left; and bytes that TCP discards leave the buffers
    /// untouched.
    fn may_append(&mut self, fd: i32) -> bool {
        match *self.backlog.get_or_insert_with(|| Backlog::of(fd)) {
            Backlog::Unknown => false,
            Backlog::Tcp => self.msg_flags & MSG_TRUNC == 0,
            Backlog::UnixStream => true,
        }
    }

    /// Receives the rest into further buffers. Returns whether they were the ring's last.
    fn receive_rest(&mut self, cx: &mut IssueCx<'_>, outcome: &mut Outcome) -> bool {
        let fd = cx.file.fd;
        // One byte may be only the stream's end: it is not worth the call.
        let Some(waits) = io::bytes_readable(fd).ok().filter(|&n| n > 1) else { return false };
        let groups = &mut cx.ring.buf_groups;
        let first_flags = self.selected.take().map_or(0, |first| groups.put(first));
        let wanted = (waits as u32).min(self.left_in_all.unwrap_or(u32::MAX));
        let Ok(mut rest) = groups.select_bundle(cx.buf_group, BundleLimit::All(wanted)) else {
            outcome.flags |= first_flags;
            return true;
        };
        self.take_buffers(&rest);
        let received = self.receive(fd, nonblocking(self.msg_flags));
        let mut flags = first_flags;
        if let Ok((n @ 1.., _)) = received {
            outcome.res += n as i32;
            self.left_in_all = self.left_in_all.map(|left| left.saturating_sub(n as u32));
            flags = flags & !cqe::BUF_MORE | rest.mark_used(n as u32) & cqe::BUF_MORE;
            self.drained_stream = n == waits as usize && self.drained_stream;
        }
        let is_last = rest.is_last();
        outcome.flags = outcome.flags & !(cqe::BUF_MORE | cqe::SOCK_NONEMPTY) | flags;
        if io::bytes_readable(fd).is_ok_and(|n| n > 0) {
            outcome.flags |= cqe::SOCK_NONEMPTY;
        }
        cx.ring.buf_groups.put(rest);
        is_last
    }

    pub(super) fn take_buffers(&mut self, chosen: &SelectedBuf) {
        self.iovecs = chosen.iovecs();
        self.addr = chosen.addr;
        self.len = chosen.len;
    }
}
