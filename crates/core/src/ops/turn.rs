//! The turn of a multishot receive: a peer that sends as fast as the program receives must not keep
//! other requests waiting.

use super::issue::Issue;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// Transfers that the next one followed at once. As in the kernel, a wait for poll between them
    /// does not set it back.
    retries: u8,
    next: NextTry,
}

/// When the next transfer is tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum NextTry {
    #[default]
    AtOnce,
    /// The last transfer has emptied a stream whose edges are all seen.
    OnEdge,
    /// The last transfer has most probably taken all there was.
    AfterPoll,
    /// There is more, but others have their turn first.
    AfterOthers,
}

impl Turn {
    /// The kernel's number.
    const MOST_RETRIES: u8 = 32;

    /// There may be more.
    pub(crate) fn go_on(&mut self) {
        if self.retries == Self::MOST_RETRIES {
            return self.end();
        }
        self.retries += 1;
    }

    /// There may be more, but the turn ends.
    pub(crate) fn end(&mut self) {
        *self = Self { retries: 0, next: NextTry::AfterOthers };
    }

    /// Whether the next transfer follows at once.
    pub(crate) fn goes_on(&self) -> bool {
        self.next == NextTry::AtOnce
    }

    /// The stream is empty, and what comes from now on is an edge.
    pub(crate) fn wait_for_edge(&mut self) {
        self.next = NextTry::OnEdge;
    }

    /// The file is most probably empty.
    pub(crate) fn wait_for_poll(&mut self) {
        self.next = NextTry::AfterPoll;
    }

    /// The answer of the next try if nothing is to be tried.
    #[inline]
    pub(crate) fn answer(&mut self, mask: u32) -> Option<Issue> {
        match core::mem::take(&mut self.next) {
            NextTry::AtOnce => None,
            NextTry::OnEdge => Some(Issue::WouldBlock(mask)),
            NextTry::AfterPoll => Some(Issue::PollFirst(mask)),
            NextTry::AfterOthers => Some(Issue::EndTurn(mask)),
        }
    }
}
