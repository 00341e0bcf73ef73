//! What one attempt at a request leads to.

use crate::apoll::Rearm;
use crate::ops::OpFile;
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
