//! What is left to be done for requests when the submission, or the batch of events, that caused it
//! is over (the kernel's task work): in order, so that the CQE of a cancel comes before that of the
//! request it cancelled, and the rest of a chain after the other requests of its submission.

use crate::request::{Outcome, Request};
use alloc::boxed::Box;

/// See the module. (A link is in a box already: queueing it moves no request.)
#[derive(Debug)]
pub(crate) enum Ready {
    /// A chain whose turn has come.
    Issue(Box<Request>),
    /// A request that was cancelled, or whose chain is broken.
    Complete(Box<Request>, Outcome),
    /// A TIMEOUT that has seen its number of CQEs.
    Expire(Box<Request>),
}
