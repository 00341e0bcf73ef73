//! What one attempt at a request leads to.

use crate::apoll::Rearm;
use crate::ops::{FastProgress, OpFile};
use crate::request::Outcome;
use crate::throttle::Throttled;

/// The result of one attempt.
#[derive(Debug)]
pub(crate) enum Attempt {
    /// The request is over; the caller completes it.
    Done(Outcome),
    /// The request is still the caller's, and goes on as told.
    Continue(OpFile, Next),
    /// The request was moved out: it is parked, or complete already.
    Parked,
}

/// How a request goes on after an attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Next {
    /// Armed for these poll events.
    Arm(u32, Rearm),
    /// On a worker.
    Punt,
    /// On a worker that has its submitter's identity: this thread has another one.
    PuntToSubmitter,
    /// A write delayed by a timer: too many pages are dirty.
    Throttle(Throttled),
    /// As kernel AIO.
    Aio,
    /// Attempted again: the descriptor number turned out to name another file.
    Restart,
}

/// How many SQEs the current submission has. Metadata operations run inline in a shallow one, and
/// in a deep one while they are quick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    Shallow,
    Deep,
    /// It is none: the thread also drives other requests.
    Driving,
}

impl Depth {
    /// The depth of a submission of `sqes`.
    pub(super) fn of(sqes: u32) -> Self {
        const SHALLOW: u32 = 4;
        if sqes <= SHALLOW { Self::Shallow } else { Self::Deep }
    }
}

/// The result of the fast path.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FastPath {
    /// Complete, without a request.
    Done(Outcome),
    /// So many bytes are moved: a request does the rest.
    Short(usize),
    /// A read or an open that would wait: a request does it, without another try.
    WouldBlock,
    /// Nothing is done: a request is built.
    Fallback,
}

impl FastPath {
    /// The progress for the request that does the rest.
    #[inline]
    pub(super) fn progress(self) -> FastProgress {
        match self {
            Self::Short(n) => FastProgress::Bytes(n),
            Self::WouldBlock => FastProgress::WouldBlock,
            Self::Done(_) | Self::Fallback => FastProgress::None,
        }
    }
}
