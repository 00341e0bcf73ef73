//! What is left to be done for requests when the submission, or the batch of events, that caused it
//! is over (the kernel's task work): in order, so that the CQE of a cancel comes before that of the
//! request it cancelled, and the rest of a chain after the other requests of its submission.

use crate::request::{Outcome, Request};

/// See the module.
#[derive(Debug)]
pub(crate) enum Ready {
    /// A chain whose turn has come.
    Issue(Request),
    /// A request that was cancelled, or whose chain is broken.
    Complete(Request, Outcome),
    /// A TIMEOUT that has seen its number of CQEs.
    Expire(Request),
}
